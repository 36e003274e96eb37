"""The recommendation in words with its alternatives, or "nothing yet" and the command that helps."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from itertools import pairwise
from statistics import fmean

from accelsweep import registry
from accelsweep.analysis.alternatives import (
    Own,
    alternatives_to,
    kept_quality,
    nothing_to_compare,
    nothing_without_baseline,
    price_of,
    quality_name,
    side_by_side,
    traded,
)
from accelsweep.analysis.baseline_comparison import Comparison, Rules, noise_against_baseline
from accelsweep.analysis.costs import candidates, cost_of, front, money_of, objectives
from accelsweep.analysis.headline import (
    MOST_WORDS,
    Situation,
    advice,
    between,
    command,
    faster,
    more_blocks,
    name_of,
    short_name,
    whole,
)
from accelsweep.analysis.intervals import significant
from accelsweep.analysis.near_best import not_told_apart
from accelsweep.analysis.power import planned_repeats, repeats_needed, smallest_visible_effect
from accelsweep.analysis.quality import FASTER_BUT_WORSE, NOT_MEASURED, QualityMeasure, shown_not_worse
from accelsweep.analysis.run_results import CellRuns, RunRow
from accelsweep.records.estimates import LESS, MORE, Verdict
from accelsweep.records.findings import CellFinding, Certainty, Recommendation
from accelsweep.records.plan import Manifest
from accelsweep.records.run_environment import HardwareKind
from accelsweep.significant_digits import count_of

MORE_REPEATS = "more repeats would settle it"

QUIETER_RUNS = (
    "quieter runs would help more than repeats: stop other work, lengthen the windows, or sweep fewer settings"
)


def recommend(situations: Mapping[str, Situation]) -> Recommendation:
    """Return the recommendation, in words whose numbers stand in the cells' findings.

    `situations` are by the hardware of the baseline. Ratios to baselines on different hardware cannot be compared. So
    several situations are weighed by what a result costs, and each has its own advice, among the alternatives.
    """
    each = {hardware: Own(one, _timed(one, _recommend(one))) for hardware, one in situations.items()}
    if len(each) == 1:
        return next(iter(each.values())).given
    return side_by_side(each)


def _timed(situation: Situation, given: Recommendation) -> Recommendation:
    """Return the advice with the minutes that its added blocks will take, where earlier runs tell."""
    if situation.block_seconds is None or not given.settle_blocks:
        return given
    minutes = significant(given.settle_blocks * situation.block_seconds / 60)
    return given.model_copy(update={"settle_minutes": minutes})


def _recommend(situation: Situation) -> Recommendation:
    for own_advice in registry.loaded("recommend"):
        more = _more_repeats(situation, list(map(_ratio, _open(situation))))
        if (advised := own_advice(situation, more)) is not None:
            found: Recommendation = advised
            return found
    quicker = sorted(situation.having(*MORE), key=lambda cell: (-_ratio(cell), cell.cell))
    sound = [cell for cell in quicker if _sound(cell)]
    if sound:
        return _train(situation, sound[0], [cell for cell in quicker if _ratio(cell) > _ratio(sound[0])])
    if any(cell.quality_verdict != FASTER_BUT_WORSE for cell in quicker):
        return traded(situation, quicker)
    if situation.baseline is None:
        return nothing_without_baseline(situation)
    if disturbed := situation.having(Verdict.disturbed):
        return _disturbed(situation, disturbed)
    if open_ones := _open(situation):
        return _not_yet(situation, open_ones, quicker)
    return _stay(situation, situation.baseline, quicker)


def _open(situation: Situation) -> list[CellFinding]:
    return [*situation.having(Verdict.undecided), *situation.having(Verdict.not_yet)]


def _sound(cell: CellFinding) -> bool:
    return shown_not_worse(cell.quality_verdict) or cell.quality_verdict == NOT_MEASURED


def _train(situation: Situation, best: CellFinding, traded_ones: Sequence[CellFinding]) -> Recommendation:
    assert best.ratio is not None
    rivals = situation.rivals(best)
    unsettled = [_ratio(best) / _ratio(cell) for cell in rivals if _ratio(cell) > 0.0]
    unsettled += [_ratio(cell) for cell in situation.having(Verdict.undecided)]
    more = _more_repeats(situation, unsettled)
    return advice(
        faster(best, situation.baseline, situation.wording),
        Certainty.not_told_apart if rivals else Certainty.sure,
        between(best.ratio, situation.baseline, situation.wording),
        _money_words(situation, best),
        kept_quality(situation, best),
        f"Not told apart from: {_listed(rivals)}." if rivals else "",
        price_of(situation, traded_ones[0]) if traded_ones else "",
        chosen=best,
        alternatives=alternatives_to(situation, best),
        settle=more_blocks(situation.manifest, more),
        settle_blocks=more,
    )


def _money_words(situation: Situation, cell: CellFinding) -> str:
    """Return what the same work costs beside the baseline, where both have prices."""
    base, money = situation.baseline, money_of(situation.cells)
    own, other = cost_of(cell, money), base and cost_of(base, money)
    return f"The same work costs {own / other:.2g}x as much." if own is not None and other else ""


def _listed(cells: Sequence[CellFinding]) -> str:
    """Return up to three settings by name, and how many there are beyond."""
    shown = "; ".join(map(name_of, cells[:3]))
    return shown if len(cells) <= 3 else f"{shown}; and {count_of(len(cells) - 3, 'other setting')}"


def _disturbed(situation: Situation, disturbed: Sequence[CellFinding]) -> Recommendation:
    total = sum(cell.ratio is not None for cell in situation.cells)
    were = "was" if total == 1 else "were"
    settle = shlex.join(["accelsweep", "retry", situation.manifest.sweep, "--outcome", "disturbed"])
    return advice(
        f"Nothing can be recommended: {len(disturbed)} of {count_of(total, 'comparison')} {were} disturbed",
        Certainty.disturbed,
        whole(f"The first: {disturbed[0].verdict_reason}"),
        "Stop other work on the machine, and measure the disturbed runs again.",
        settle=f"{settle} && {command(situation.manifest)}",
    )


def _stay(situation: Situation, baseline: CellFinding, worse: Sequence[CellFinding]) -> Recommendation:
    """Advise to stay with the baseline; `worse` are the cells that are faster but lose quality, fastest first."""
    others = len(situation.having(*LESS, Verdict.same)) + len(worse)
    if not others:
        return nothing_to_compare(situation)
    why = f"nothing faster keeps its {quality_name(situation)}" if worse else situation.wording.nothing
    name = short_name(baseline, None, MOST_WORDS - 2 - len(why.split()))
    beyond = f"{situation.rules.threshold * 100:.2g} %"
    most = (
        f"None of {count_of(others, 'other setting')} that could be compared {situation.wording.beyond.format(beyond)}"
    )
    return advice(
        f"Stay with {name}: {why}",
        Certainty.sure,
        f"{most}{' without losing quality' if worse else ''}.",
        price_of(situation, worse[0]) if worse else "",
        chosen=baseline,
        alternatives=alternatives_to(situation, baseline),
    )


def _not_yet(situation: Situation, undecided: Sequence[CellFinding], worse: Sequence[CellFinding]) -> Recommendation:
    decided = len(situation.having(*LESS, Verdict.same))
    total = decided + len(worse) + len(undecided)
    more = _more_repeats(situation, [_ratio(cell) for cell in undecided])
    repeats = count_of(situation.repeats, "repeat")
    return advice(
        f"Nothing can be recommended yet: {len(undecided)} of {count_of(total, 'comparison')} undecided",
        Certainty.not_yet,
        f"There {'is' if situation.repeats == 1 else 'are'} {repeats}; {MORE_REPEATS if more else QUIETER_RUNS}.",
        price_of(situation, worse[0]) if worse else "",
        settle=more_blocks(situation.manifest, more),
        settle_blocks=more,
    )


def _more_repeats(situation: Situation, ratios: Sequence[float]) -> int:
    """Return how many blocks more should settle most of these ratios; 0 where no number is advised.

    No more than `repeats_most` in all are advised: past that, other things help more.
    """
    family, most = situation.rules.family, situation.manifest.settings.repeats_most
    if not ratios or not situation.room:
        return 0
    if situation.noise is None:
        return min(5, situation.room)
    size, confidence, threshold = family.size, family.confidence, situation.rules.threshold
    needed = [
        repeats_needed(ratio, situation.noise, family=size, confidence=confidence, threshold=threshold)
        for ratio in ratios
        if ratio > 0.0
    ]
    enough = max((repeats for repeats in needed if repeats is not None and repeats <= most), default=None)
    return 0 if enough is None else min(max(enough - situation.repeats, 2), situation.room)


def _ratio(cell: CellFinding) -> float:
    return 0.0 if cell.ratio is None else cell.ratio.value


# The minutes that more blocks take, by the wall times of the runs so far.


def block_seconds(groups: Sequence[CellRuns], manifest: Manifest) -> float | None:
    """Return the seconds that one more block takes: its start, and its runs by the mean of each cell's runs.

    The baseline counts as often as a new block holds it. Runs that failed count as well: a new block holds their cells
    too. None where no run has a wall time.
    """
    runs = [run for group in groups for run in group.runs]
    walls: dict[str, list[float]] = {}
    for run in runs:
        if run.wall_seconds is not None:
            walls.setdefault(run.cell, []).append(run.wall_seconds)
    if not walls:
        return None
    others = sum(cell != manifest.baseline for cell in walls)
    times = max(1, min(manifest.settings.block.baseline_runs, others))
    measuring = sum(fmean(seconds) * (times if cell == manifest.baseline else 1) for cell, seconds in walls.items())
    return _start_seconds(runs) + measuring


def _start_seconds(runs: Iterable[RunRow]) -> float:
    """Return the shortest pause between two blocks; 0 where there is none. Longer ones hold more than a start."""
    spans: dict[str, list[tuple[datetime, datetime]]] = {}
    for run in runs:
        if run.block and run.started_at and run.finished_at:
            span = datetime.fromisoformat(run.started_at), datetime.fromisoformat(run.finished_at)
            spans.setdefault(run.block, []).append(span)
    blocks = sorted((min(start for start, _ in each), max(end for _, end in each)) for each in spans.values())
    pauses = [(after[0] - before[1]).total_seconds() for before, after in pairwise(blocks)]
    return min((pause for pause in pauses if pause >= 0.0), default=0.0)


# The cells weighed against each other: how much their repeats can show, which are worth choosing, and the advice.


@dataclass(frozen=True)
class Weighed:
    """The results of weighing the cells against each other. `visible` is the smallest effect that can be seen."""

    repeats: int
    visible: float | None
    pareto: tuple[str, ...]
    objectives: tuple[str, ...]
    recommendation: Recommendation


def weigh(
    manifest: Manifest,
    groups: Sequence[CellRuns],
    comparisons: Sequence[Comparison],
    cells: tuple[CellFinding, ...],
    rules: Rules,
    measure: QualityMeasure,
    names: Mapping[HardwareKind, str],
) -> Weighed:
    """Weigh the cells against each other: repeats, noise, Pareto front, recommendation."""
    noise, repeats = noise_against_baseline(groups, comparisons), planned_repeats(cells, manifest)
    chosen = candidates(cells)
    goals, seconds = objectives(chosen, measure, rules.threshold), block_seconds(groups, manifest)
    pareto = tuple(chosen[index].cell for index in front(goals, len(chosen)))
    situations = {
        hardware: Situation(
            *(manifest, part, rules, measure, noise, pareto, partial(_rivals, groups, cells, rules), seconds),
            metric=groups[0].rate_metric,
        )
        for hardware, part in _by_baseline(comparisons, cells, names).items()
    }
    return Weighed(repeats, _visible(repeats, noise, rules), pareto, tuple(goals), recommend(situations))


def _rivals(
    groups: Sequence[CellRuns], cells: Sequence[CellFinding], rules: Rules, best: CellFinding
) -> list[CellFinding]:
    """Return the findings of the cells that cannot be told apart from `best`, one of `cells`."""
    found = {id(one): cell for one, cell in zip(groups, cells, strict=True)}
    chosen = next(one for one, cell in zip(groups, cells, strict=True) if cell is best)
    return [found[id(one)] for one in not_told_apart(chosen, groups, rules)]


def _by_baseline(
    comparisons: Sequence[Comparison], cells: tuple[CellFinding, ...], names: Mapping[HardwareKind, str]
) -> dict[str, tuple[CellFinding, ...]]:
    """Return the cells by the hardware of their baseline; all of them in one group where there is one baseline."""
    partners = [one.partner for one in comparisons]
    kinds = [names.get(one.hardware) if one else None for one in partners]
    several = sorted({kind for kind in kinds if kind is not None})
    if len(several) < 2:
        return {"": cells}
    return {kind: tuple(cell for cell, own in zip(cells, kinds, strict=True) if own == kind) for kind in several}


def _visible(repeats: int, noise: float | None, rules: Rules) -> float | None:
    if noise is None:
        return None
    family, threshold = rules.family, rules.threshold
    effect = smallest_visible_effect(
        repeats, noise, family=family.size, confidence=family.confidence, threshold=threshold
    )
    return None if effect is None else significant(effect)
