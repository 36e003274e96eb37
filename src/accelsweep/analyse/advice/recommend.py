"""The recommendation in words with its alternatives, or "nothing yet" and the command that helps."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence

from accelsweep.analyse.advice.across import Own, side_by_side
from accelsweep.analyse.advice.alternatives import alternatives_to
from accelsweep.analyse.advice.headline import MOST_WORDS, advice, between, faster, name_of, short_name, whole
from accelsweep.analyse.advice.nothing import nothing_to_compare, nothing_without_baseline
from accelsweep.analyse.advice.price import kept_quality, price_of, quality_name, traded
from accelsweep.analyse.advice.situation import Situation
from accelsweep.analyse.advice.versions import about_versions
from accelsweep.analyse.advice.words import command, more_blocks
from accelsweep.analyse.findings.pareto import cost_of, money_of
from accelsweep.analyse.findings.quality import FASTER_BUT_WORSE, NOT_MEASURED, shown_not_worse
from accelsweep.analyse.statistics.intervals import significant
from accelsweep.base.digits import count_of
from accelsweep.core.findings.choices import Certainty, Recommendation
from accelsweep.core.findings.measured import CellFinding
from accelsweep.core.findings.numbers import LESS, MORE, Verdict
from accelsweep.repeats.power import repeats_needed

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
    if situation.manifest.compared:
        return about_versions(situation, _more_repeats(situation, list(map(_ratio, _open(situation)))))
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
