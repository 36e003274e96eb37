"""Recommends a setting or explains why it is too early to choose, with the command that would settle the matter."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import pairwise
from statistics import fmean
from typing import Any

from accelsweep import registry
from accelsweep.analysis.alternatives import (
    HardwareAdvice,
    alternatives_to,
    no_baseline,
    nothing_to_compare,
    quality_open,
    recommend_across_hardware,
    tradeoff_sentence,
)
from accelsweep.analysis.baseline_comparison import Comparison, Rules, comparison_noise, possibly_as_fast_as
from accelsweep.analysis.costs import cost_ratio
from accelsweep.analysis.headline import (
    Situation,
    as_opening,
    claim,
    headline_name,
    interval_sentence,
    quality_sentence,
    ratio_text,
    with_full_stop,
)
from accelsweep.analysis.intervals import round_significant
from accelsweep.analysis.pareto import candidates, objectives, pareto_front
from accelsweep.analysis.quality import NOT_MEASURED, QualityMeasure, is_not_worse, is_worse
from accelsweep.analysis.run_results import RunRow, SettingRuns
from accelsweep.analysis.statistical_power import planned_repeats, repeats_needed, smallest_visible_effect
from accelsweep.records.estimates import LESS, MORE, Verdict
from accelsweep.records.findings import Certainty, Recommendation, SettingFinding, advice
from accelsweep.records.plan import Manifest
from accelsweep.records.sweep_commands import add_blocks_command, retry_command
from accelsweep.run_environment import HardwareKind
from accelsweep.significant_digits import count_of

_DISTURBED_SHARE = 0.1
"""If at least this share of the runs was disturbed, they are measured again rather than all settings more often."""

MORE_REPEATS = "more repeats would settle it"

QUIETER_RUNS = (
    "less noise would help more than extra repeats: stop other work, lengthen the windows, or sweep fewer settings"
)


@dataclass(frozen=True)
class Assessment:
    """The joint assessment of all settings. `visible` is the smallest effect that the repeats can detect."""

    repeats: int
    visible: float | None
    pareto: tuple[str, ...]
    objectives: tuple[str, ...]
    recommendation: Recommendation


def assess(
    manifest: Manifest,
    groups: Sequence[SettingRuns],
    comparisons: Sequence[Comparison],
    settings: tuple[SettingFinding, ...],
    rules: Rules,
    measure: QualityMeasure,
    names: Mapping[HardwareKind, str],
) -> Assessment:
    """Assess all settings together: repeats, noise, Pareto front, recommendation."""
    noise, repeats = comparison_noise(groups, comparisons), planned_repeats(settings, manifest)
    chosen = candidates(settings)
    goals = objectives(chosen, measure, rules.threshold)
    pareto = tuple(chosen[index].setting for index in pareto_front(goals, len(chosen)))
    walls = [run.wall_seconds for group in groups for run in group.runs if run.wall_seconds is not None]
    seconds = block_seconds(groups, manifest), fmean(walls) if walls else None

    def rivals(best: SettingFinding) -> list[SettingFinding]:
        findings = {id(group): setting for group, setting in zip(groups, settings, strict=True)}
        group = next(group for group in groups if findings[id(group)] is best)
        return [findings[id(rival)] for rival in possibly_as_fast_as(group, groups, rules)]

    # ratios to baselines on different hardware are not comparable
    partners = (comparison.partner for comparison in comparisons)
    kinds = [names.get(partner.hardware) if partner else None for partner in partners]
    by_baseline = {"": settings}
    if len(several := sorted({kind for kind in kinds if kind is not None})) > 1:
        by_baseline = {
            kind: tuple(setting for setting, own in zip(settings, kinds, strict=True) if own == kind)
            for kind in several
        }
    situations = {
        hardware: Situation(
            *(manifest, part, rules, measure, noise, pareto, rivals, *seconds), metric=groups[0].rate_metric
        )
        for hardware, part in by_baseline.items()
    }
    visible = None
    if noise is not None:
        size, confidence = rules.family.size, rules.family.confidence
        effect = smallest_visible_effect(repeats, noise, family=size, confidence=confidence, threshold=rules.threshold)
        visible = None if effect is None else round_significant(effect)
    return Assessment(repeats, visible, pareto, tuple(goals), recommend(situations))


def recommend(situations: Mapping[str, Situation]) -> Recommendation:
    """Write the recommendation, taking all numbers from the settings' findings.

    `situations` is keyed by the baseline's hardware. If there are several kinds, they are compared by cost per result,
    and the advice for each is listed among the alternatives.
    """
    each = {}
    for hardware, situation in situations.items():
        given = _recommend(situation)
        if given.settle_blocks and _disturbed_runs(situation) >= _DISTURBED_SHARE * _rated_runs(situation):
            given = given.model_copy(update={**_measuring_again(situation), "settle_blocks": 0})
        elif situation.block_seconds is not None and given.settle_blocks:
            minutes = round_significant(given.settle_blocks * situation.block_seconds / 60)
            given = given.model_copy(update={"settle_minutes": minutes})
        each[hardware] = HardwareAdvice(situation, given)
    return next(iter(each.values())).given if len(each) == 1 else recommend_across_hardware(each)


def _recommend(situation: Situation) -> Recommendation:
    undecided = [*situation.having(Verdict.undecided), *situation.having(Verdict.not_yet)]
    for recommend_feature in registry.loaded("recommend"):
        more = _more_repeats(situation, list(map(_ratio, undecided)))
        result: Recommendation | None = recommend_feature(situation, more)
        if result is not None:
            return result
    faster = _fastest_first(situation.having(*MORE))
    sound = [
        setting
        for setting in faster
        if is_not_worse(setting.quality_verdict) or setting.quality_verdict == NOT_MEASURED
    ]
    if sound:
        return _choose(situation, sound[0], [setting for setting in faster if _ratio(setting) > _ratio(sound[0])])
    if any(not is_worse(setting.quality_verdict) for setting in faster):
        return quality_open(situation, faster)
    if situation.baseline is None:
        return no_baseline(situation)
    if disturbed := situation.having(Verdict.disturbed):
        return _disturbed(situation, disturbed, faster)
    if undecided:
        return _not_yet(situation, _fastest_first(undecided), faster)
    return _keep_baseline(situation, situation.baseline, faster)


def _choose(situation: Situation, best: SettingFinding, faster_but_unsound: Sequence[SettingFinding]) -> Recommendation:
    assert best.ratio is not None
    rivals = [rival for rival in situation.rivals(best) if not is_worse(rival.quality_verdict)]
    unsettled = [_ratio(best) / _ratio(setting) for setting in rivals if _ratio(setting) > 0.0]
    unsettled += [_ratio(setting) for setting in situation.having(Verdict.undecided)]
    more = _more_repeats(situation, unsettled)
    cost = cost_ratio(best, situation.baseline, situation.settings)
    purpose = "To tell the best apart" if rivals else "To decide what is open"
    names = "; ".join(setting.label for setting in rivals[:3])
    if len(rivals) > 3:
        names += f"; and {count_of(len(rivals) - 3, 'other setting')}"
    return advice(
        as_opening(claim(situation, best)),
        Certainty.among_the_best if rivals else Certainty.sure,
        interval_sentence(best.ratio, situation),
        "" if cost is None else f"The same work costs {cost:.2g}x as much.",
        quality_sentence(situation, best),
        f"May be just as good: {names}." if rivals else "",
        tradeoff_sentence(situation, faster_but_unsound[0]) if faster_but_unsound else "",
        chosen=best,
        alternatives=alternatives_to(situation, best),
        settle=add_blocks_command(situation.manifest, more) or _apply_command(situation.manifest),
        settle_blocks=more,
        purpose=purpose if more else "To use it in your training",
    )


def _apply_command(manifest: Manifest) -> str | None:
    """Return the command that writes the recommended setting into the user's project, if it measures one."""
    return shlex.join(["accelsweep", "apply", manifest.sweep]) if manifest.entry is not None else None


def _disturbed(
    situation: Situation, disturbed: Sequence[SettingFinding], worse: Sequence[SettingFinding]
) -> Recommendation:
    total = sum(setting.ratio is not None for setting in situation.settings)
    were = f"{len(disturbed)} of {count_of(total, 'comparison')} {'was' if total == 1 else 'were'} disturbed"
    given = advice(
        as_opening(claim(situation, worse[0])) if worse else f"No answer yet: {were}",
        Certainty.disturbed,
        f"{_evidence(situation, worse[0])} {were}." if worse else "",
        with_full_stop(as_opening(f"{disturbed[0].label}: {disturbed[0].verdict_reason}")),
        "Stop other work on the machine, and measure the disturbed runs again.",
        fastest=worse[0] if worse else None,
    )
    return given.model_copy(update=_measuring_again(situation))


def _measuring_again(situation: Situation) -> dict[str, Any]:
    """Return the fields of a recommendation that advise to measure the disturbed runs again."""
    runs, seconds = _disturbed_runs(situation), situation.run_seconds
    which = "disturbed run" if runs == 1 else f"{runs} disturbed runs"
    return {
        "settle": retry_command(situation.manifest),
        "settle_minutes": None if seconds is None else round_significant(runs * seconds / 60),
        "settle_purpose": f"To measure the {which} again",
    }


def _disturbed_runs(situation: Situation) -> int:
    return sum(any(doubt.disturbing for doubt in run.doubts) for setting in situation.settings for run in setting.runs)


def _rated_runs(situation: Situation) -> int:
    return sum(run.rate is not None for setting in situation.settings for run in setting.runs)


def _keep_baseline(situation: Situation, baseline: SettingFinding, worse: Sequence[SettingFinding]) -> Recommendation:
    """Recommend the baseline; `worse` lists the settings that are faster but lose quality, fastest first."""
    others = len(situation.having(*LESS, Verdict.same)) + len(worse)
    if not others:
        return nothing_to_compare(situation)
    why = claim(situation, worse[0]) if worse else situation.wording.nothing
    beyond = situation.wording.beyond.format(f"{situation.rules.threshold * 100:.2g} %")
    return advice(
        f"Stay with {headline_name(baseline, None)}: {why}",
        Certainty.sure,
        _evidence(situation, worse[0]) if worse else "",
        f"None of the {count_of(others, 'other setting')} that could be compared {beyond}"
        f"{' without losing quality' if worse else ''}.",
        chosen=baseline,
        alternatives=alternatives_to(situation, baseline),
    )


def _not_yet(
    situation: Situation, undecided: Sequence[SettingFinding], worse: Sequence[SettingFinding]
) -> Recommendation:
    """Explain which comparisons are open; both lists are sorted fastest first."""
    total = len(situation.having(*LESS, Verdict.same)) + len(worse) + len(undecided)
    more = _more_repeats(situation, [_ratio(setting) for setting in undecided])
    repeats = count_of(situation.repeats, "repeat")
    are_open = f"{len(undecided)} of {count_of(total, 'comparison')} {'is' if total == 1 else 'are'} undecided"
    best = undecided[0]
    highest = f": {ratio_text(best.ratio, situation.baseline_name, situation.wording)}" if best.ratio else ""
    return advice(
        as_opening(claim(situation, worse[0]))
        if worse
        else f"Nothing is shown to be {situation.wording.more} yet: {are_open}",
        Certainty.none_recommended if worse else Certainty.undecided,
        f"{_evidence(situation, worse[0])} {are_open}." if worse else f"Highest so far is {best.label}{highest}.",
        f"There {'is' if situation.repeats == 1 else 'are'} {repeats}; {MORE_REPEATS if more else QUIETER_RUNS}.",
        fastest=worse[0] if worse else best,
        settle=add_blocks_command(situation.manifest, more),
        settle_blocks=more,
        purpose="To decide the open comparisons",
    )


def _evidence(situation: Situation, setting: SettingFinding) -> str:
    """Return the sentences behind a headline: the interval of the ratio, and the quality."""
    assert setting.ratio is not None
    return f"{interval_sentence(setting.ratio, situation)} {quality_sentence(situation, setting)}"


def _fastest_first(settings: Iterable[SettingFinding]) -> list[SettingFinding]:
    return sorted(settings, key=lambda setting: (-_ratio(setting), setting.setting))


def _more_repeats(situation: Situation, ratios: Sequence[float]) -> int:
    """Return how many more blocks should settle most of these ratios; 0 if no number can be recommended.

    The total never exceeds `repeats_most`: beyond that, other measures are more effective.
    """
    if not ratios or not situation.room:
        return 0
    if situation.noise is None:
        return min(5, situation.room)
    family, threshold = situation.rules.family, situation.rules.threshold
    needed = [
        repeats_needed(ratio, situation.noise, family=family.size, confidence=family.confidence, threshold=threshold)
        for ratio in ratios
        if ratio > 0.0
    ]
    most = situation.manifest.options.repeats_most
    enough = max((repeats for repeats in needed if repeats is not None and repeats <= most), default=None)
    return 0 if enough is None else min(max(enough - situation.repeats, 2), situation.room)


def _ratio(setting: SettingFinding) -> float:
    return 0.0 if setting.ratio is None else setting.ratio.value


def block_seconds(groups: Sequence[SettingRuns], manifest: Manifest) -> float | None:
    """Return the wall time in seconds of one additional block: its start-up plus the mean time of each setting's runs.

    The baseline counts once for each of its runs in a new block. Failed runs are included, because a new block repeats
    them. None if no wall time was recorded.
    """
    runs = [run for group in groups for run in group.runs]
    walls: dict[str, list[float]] = {}
    for run in runs:
        if run.wall_seconds is not None:
            walls.setdefault(run.setting, []).append(run.wall_seconds)
    if not walls:
        return None
    others = sum(setting != manifest.baseline for setting in walls)
    times = max(1, min(manifest.options.block.baseline_runs, others))
    measuring = sum(
        fmean(seconds) * (times if setting == manifest.baseline else 1) for setting, seconds in walls.items()
    )
    return _start_seconds(runs) + measuring


def _start_seconds(runs: Iterable[RunRow]) -> float:
    """Return the shortest pause between two blocks, or 0; longer pauses include more than a block's start-up."""
    spans: dict[str, list[tuple[datetime, datetime]]] = {}
    for run in runs:
        if run.block and run.started_at and run.finished_at:
            span = datetime.fromisoformat(run.started_at), datetime.fromisoformat(run.finished_at)
            spans.setdefault(run.block, []).append(span)
    blocks = sorted((min(start for start, _ in each), max(end for _, end in each)) for each in spans.values())
    pauses = [(after[0] - before[1]).total_seconds() for before, after in pairwise(blocks)]
    return min((pause for pause in pauses if pause >= 0.0), default=0.0)
