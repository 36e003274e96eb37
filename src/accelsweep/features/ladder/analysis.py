"""Computes a ladder's gains: each rung adds one optimisation and is compared with the previous and the first rung.

The rungs are the values of one axis (`report.ladder`), in the order of the grid. A rung without a rate (because it
failed or missed its target) remains as a row with a reason; the next rung is compared with the last rung that yielded a
rate.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from accelsweep.analysis.analyse_sweep import Analysis
from accelsweep.analysis.baseline_comparison import Comparison, Rules, compare, outcome_summary, rate_estimate
from accelsweep.analysis.comparability import incompatibility
from accelsweep.analysis.intervals import Family
from accelsweep.analysis.run_results import SettingRuns
from accelsweep.config.setting import series_label
from accelsweep.features.ladder.model import Ladder, LadderOptions, Rung
from accelsweep.plain_json import canonical_json
from accelsweep.records.estimates import Verdict
from accelsweep.run_environment import HardwareKind


@dataclass(frozen=True)
class _Step:
    """A setting on a ladder, the last setting before it with a rate, and the ladder's first setting with a rate."""

    setting: SettingRuns
    before: SettingRuns | None
    first: SettingRuns | None


def build_section(analysis: Analysis) -> Ladder | None:
    """Return the rungs of the sweep's ladders; None if there are no ladders.

    Settings that differ in another axis, or ran on different hardware kinds, belong to different ladders. The intervals
    of all gains hold simultaneously: every rung that the plan supports counts towards the family, measured or not.
    """
    axis = LadderOptions.model_validate(analysis.manifest.options.report).ladder
    if axis is None:
        return None
    ladders = list(_split_ladders(analysis.groups, axis))
    family = Family(max(1, sum(map(_ratio_count, ladders))), analysis.rules.family.confidence)
    gains = _gains([step for ladder in ladders for step in ladder], replace(analysis.rules, family=family))
    rungs = []
    for ladder in ladders:
        name = series_label(ladder[0].setting.planned.axes, (axis,))
        kinds = [step.setting.hardware for step in ladder if step.setting.hardware]
        hardware = analysis.names.get(kinds[0]) if kinds else None
        for step in ladder:
            setting, before = step.setting, step.before
            gain, total = _gain_over(setting, before, gains), _gain_over(setting, step.first, gains)
            rungs.append(
                Rung(
                    ladder=name,
                    hardware=hardware,
                    step=str(setting.planned.axes[axis]),
                    setting=setting.setting,
                    rate=rate_estimate(setting, analysis.rules.family.confidence),
                    before=str(before.planned.axes[axis]) if before is not None and setting.rated else None,
                    gain=gain.ratio,
                    verdict=gain.verdict,
                    total=total.ratio,
                    total_verdict=total.verdict,
                    reason=gain.reason,
                )
            )
    return Ladder(rungs=tuple(rungs)) if rungs else None


def _split_ladders(groups: Sequence[SettingRuns], axis: str) -> Iterator[list[_Step]]:
    """Yield each ladder's steps, in grid order. A setting that did not run appears on every hardware kind's ladder."""
    by_other_axes: dict[str, list[SettingRuns]] = {}
    for group in (group for group in groups if axis in group.planned.axes):
        others = {key: value for key, value in group.planned.axes.items() if key != axis}
        by_other_axes.setdefault(canonical_json(others), []).append(group)
    for members in by_other_axes.values():
        kinds = list(dict.fromkeys(group.hardware for group in members if group.hardware)) or [HardwareKind()]
        for kind in kinds:
            ladder = [group for group in members if group.hardware in (kind, HardwareKind())]
            if len(ladder) > 1:
                yield list(_steps(ladder))


def _steps(ladder: Sequence[SettingRuns]) -> Iterator[_Step]:
    first = next((group for group in ladder if group.rated), None)
    before = None
    for group in ladder:
        yield _Step(group, before, None if group is first else first)
        before = group if group.rated else before


def _ratio_count(ladder: Sequence[_Step]) -> int:
    """Return the number of gains on a ladder: two per rung, but one for the second and none for the first."""
    supported = sum(step.setting.planned.unsupported is None for step in ladder)
    return max(0, 2 * (supported - 1) - 1)


_Gains = Mapping[tuple[int, int], Comparison]
"""Comparisons, keyed by the `id`s of the two settings."""


def _gains(steps: Sequence[_Step], rules: Rules) -> _Gains:
    """Compare all comparable pairs of rungs; variances are pooled per hardware kind."""
    pairs = {
        (id(step.setting), id(other)): (step.setting, other)
        for step in steps
        for other in (step.before, step.first)
        if other is not None and step.setting.rated
    }
    refusals = {key: incompatibility(*pair, rules.axes, rules.across) for key, pair in pairs.items()}
    comparable = {key: pair for key, pair in pairs.items() if refusals[key] is None}
    compared = dict(zip(comparable, compare(list(comparable.values()), rules), strict=True))
    return {
        key: compared[key] if refusal is None else Comparison(None, Verdict.refused, refusal)
        for key, refusal in refusals.items()
    }


def _gain_over(setting: SettingRuns, other: SettingRuns | None, gains: _Gains) -> Comparison:
    """Return one rung's gain over another; the first rung with a rate has none."""
    if not setting.rated:
        return Comparison(None, Verdict.not_measured, outcome_summary(setting))
    if other is None:
        return Comparison(None, Verdict.baseline, "the first measured rung")
    return gains[id(setting), id(other)]
