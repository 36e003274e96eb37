"""Tests claims: selects the settings of each figure, computes its value and interval, and determines the verdict.

No figure is ever dropped. If its settings were not planned, cannot run here, were not measured or must not be compared,
it is reported as `not testable here`, with the reason. An analogue's figures are judged the same way, in separate rows.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

import scipy

from accelsweep.analysis.baseline_comparison import disturbance, outcome_summary
from accelsweep.analysis.comparability import incompatibility, with_search_brackets
from accelsweep.analysis.intervals import (
    MIN_PAIRS,
    Family,
    Interval,
    exponential_estimate,
    log_ratio,
    mean,
    round_significant,
    t_interval,
)
from accelsweep.analysis.run_results import RunRow, SettingRuns
from accelsweep.features.claims.model import (
    Claim,
    ClaimFigure,
    ClaimFinding,
    ClaimVerdict,
    factors,
)
from accelsweep.metrics import UNTIMED
from accelsweep.plain_json import look_up
from accelsweep.records.estimates import Estimate
from accelsweep.results import Outcome
from accelsweep.significant_digits import count_of
from accelsweep.tasks import SIZE_METRICS

_UNKNOWN = object()


@dataclass(frozen=True)
class Side:
    """The values required on one side of a figure, and the selected settings; if not `known`, they may not match."""

    wanted: Mapping[str, Any]
    settings: tuple[SettingRuns, ...]
    known: bool = True


def select_settings(wanted: Mapping[str, Any], groups: Sequence[SettingRuns]) -> Side:
    """Return the settings with all of these values, or, failing that, the settings whose values are unknown."""
    found = {id(group): [_value(group, key, groups) for key in wanted] for group in groups}
    values = list(wanted.values())
    exact = [group for group in groups if found[id(group)] == values]
    possible = [
        group
        for group in groups
        if all(value in (want, _UNKNOWN) for value, want in zip(found[id(group)], values, strict=True))
    ]
    return Side(wanted, tuple(exact or possible), known=bool(exact) or not possible)


def _value(group: SettingRuns, key: str, groups: Sequence[SettingRuns]) -> Any:
    """Return an axis or config value; MISSING if the key does not exist, _UNKNOWN if it cannot be determined.

    A setting without runs has no config, so its value is taken from the settings that differ only in axes.
    """
    if key in group.planned.axes:
        return group.planned.axes[key]
    if group.config is not None:
        return look_up(group.config.raw, key)
    values = [
        look_up(other.config.raw, key) for other in groups if other.config is not None and _shares_config(other, group)
    ]
    return values[0] if values and all(value == values[0] for value in values) else _UNKNOWN


def _shares_config(other: SettingRuns, group: SettingRuns) -> bool:
    """Return whether the two settings differ only in axes that are plain config keys, not config groups or mappings."""
    ours, theirs, config = group.planned.axes, other.planned.axes, other.config
    return (
        config is not None
        and ours.keys() == theirs.keys()
        and all(
            ours[axis] == value or (not isinstance(value, Mapping) and look_up(config.raw, axis) == value)
            for axis, value in theirs.items()
        )
    )


COUNTED_PROVENANCE = "counted"
"""The provenance of noise-free metrics."""

VerdictReason = tuple[ClaimVerdict, str]
"""A verdict that needs no interval, and its reason."""


def selection_error(side: Side) -> VerdictReason | None:
    """Return why the selection does not match exactly one setting, or None if it does."""
    settings, wanted = len({group.setting for group in side.settings}), _wanted_text(side.wanted)
    if not settings:
        return ClaimVerdict.not_testable, f"no setting of this sweep has {wanted}"
    if not side.known:
        may = f"{count_of(settings, 'setting')} may: {outcome_summary(side.settings[0])}"
        return ClaimVerdict.not_testable, f"no setting of this sweep is known to have {wanted}; {may}"
    if settings > 1:
        return ClaimVerdict.not_testable, f"{settings} settings of this sweep have {wanted}; the claim must select one"
    return None


def missing_value(figure: ClaimFigure, side: Side) -> VerdictReason | None:
    """Return why this side's runs lack the figure's metric, or None if they include it."""
    settings, wanted = side.settings, _wanted_text(side.wanted)
    if any(ended(group) if figure.outcome is not None else logs_of(group, figure) for group in settings):
        return None
    runs = [run for group in settings for run in group.runs]
    if any(measured_of(group) for group in settings):
        return ClaimVerdict.not_testable, f"{wanted}: {_absent(figure, settings)}"
    if runs and all(run.outcome is Outcome.not_run for run in runs):
        return ClaimVerdict.not_run, f"{wanted}: {runs[0].reason}"
    return ClaimVerdict.not_testable, f"{wanted}: {outcome_summary(settings[0])}"


def _wanted_text(wanted: Mapping[str, Any]) -> str:
    return ", ".join(f"{key}={'null' if value is None else value}" for key, value in wanted.items())


def _absent(figure: ClaimFigure, settings: Sequence[SettingRuns]) -> str:
    """Return which of the expression's metrics is missing from all runs, with the reason recorded in the runs."""
    runs = [run for group in settings for run in measured_of(group)]
    for name in figure.metrics:
        if not any(run.value(name) for run in runs):
            reason = next((run.metrics[name].reason for run in runs if name in run.metrics), None)
            return f"{name} was not measured" + (f" ({reason})" if reason else "")
    return f"{figure.metric} was not measured"


def logs_of(group: SettingRuns, figure: ClaimFigure) -> dict[str, float]:
    """Return the natural logarithm of the figure's metric, keyed by block; runs in the same block are averaged."""
    by_block: dict[str, list[float]] = {}
    for run in measured_of(group):
        values = [
            run.value(part.operand) if isinstance(part.operand, str) else part.operand
            for part in factors(figure.metric)
        ]
        if all(value is not None and value > 0 for value in values):
            terms = zip(factors(figure.metric), values, strict=True)
            log = math.fsum(part.exponent * math.log(value) for part, value in terms if value is not None)
            by_block.setdefault(run.block or "", []).append(log)
    return {block: mean(logs) for block, logs in by_block.items()}


def exact_interval(group: SettingRuns, figure: ClaimFigure, logs: Mapping[str, float]) -> Interval | None:
    """Return a zero-width interval if every metric in the expression was counted and all runs agree, else None."""
    readings = [run.metrics[name] for run in measured_of(group) for name in figure.metrics if name in run.metrics]
    if len(set(logs.values())) > 1 or any(reading.provenance != COUNTED_PROVENANCE for reading in readings):
        return None
    return Interval(next(iter(logs.values())), 0.0, len(logs))


def measured_of(group: SettingRuns) -> list[RunRow]:
    """Return the measured runs, including those without the rate used to compare the sweep's settings."""
    return [run for run in group.runs if run.outcome is Outcome.measured]


def ended(group: SettingRuns) -> list[Outcome]:
    """Return the outcomes of the started runs, one per block, because runs in the same block share a seed."""
    began = [run for run in group.runs if run.outcome not in (Outcome.not_run, Outcome.unsupported)]
    return list({run.block: run.outcome for run in reversed(began)}.values())


def share(times: int, of: int, family: Family, unit: str) -> Estimate:
    """Return `times / of` with its Clopper-Pearson interval ("The Use of Confidence or Fiducial Limits", 1934).

    The interval is exact: its coverage is at least the family's confidence, even at 0 and 1. `of` is at least 1.
    """
    tail = (1.0 - family.each) / 2.0
    low = float(scipy.special.betaincinv(times, of - times + 1, tail)) if times else 0.0
    high = float(scipy.special.betaincinv(times + 1, of - times, 1.0 - tail)) if times < of else 1.0
    return Estimate(
        value=round_significant(times / of),
        low=round_significant(low),
        high=round_significant(high),
        unit=unit,
        confidence=round_significant(family.each),
        count=of,
    )


@dataclass(frozen=True)
class StatedFigure:
    """A figure with its claim, and the analogue's description if the figure belongs to an analogue."""

    claim: Claim
    figure: ClaimFigure
    analogue: str | None = None

    def sides(self) -> list[tuple[ClaimFigure, Mapping[str, Any]]]:
        """Return each selection with the figure to which it belongs: two for a ratio, four for a ratio of ratios."""
        return [(ratio, side) for ratio in self.figure.ratios for side in ratio.sides]


JudgeComposite = Callable[[StatedFigure, Sequence[SettingRuns], Family], ClaimFinding]
"""Judges a figure over workloads or other sweeps, or a figure projected onto a board; see `cross_sweep`."""


def judge_claims(
    claims: Sequence[Claim],
    groups: Sequence[SettingRuns],
    confidence: float,
    across: Collection[str] = (),
    judge_composite: JudgeComposite | None = None,
) -> tuple[ClaimFinding, ...]:
    """Return the finding on each figure. Intervals of all figures that the plan can test hold simultaneously.

    The two settings of a ratio may differ in the values that select them and in the fields listed in `across`. The rest
    of the config and the software must be identical, and so must the hardware if the accelerator is the same. The two
    ratios of a ratio of ratios may differ in any way.
    """
    stated = []
    for claim in claims:
        stated += [StatedFigure(claim, figure) for figure in claim.figures]
        if claim.analogue is not None:
            stated += [StatedFigure(claim, figure, claim.analogue.says) for figure in claim.analogue.figures]
    selected = [[select_settings(side, groups) for _, side in one.sides()] for one in stated]
    testable = sum(
        one.figure.between is not None or all(any(not g.planned.unsupported for g in side.settings) for side in sides)
        for one, sides in zip(stated, selected, strict=True)
    )
    family = Family(max(1, testable), confidence)
    findings = []
    for one, sides in zip(stated, selected, strict=True):
        if judge_composite is not None and one.figure.is_composite:
            findings.append(judge_composite(one, groups, family))
        else:
            findings.append(judge_in_sweep(one, sides, family, across))
    return tuple(findings)


def judge_in_sweep(one: StatedFigure, sides: Sequence[Side], family: Family, across: Collection[str]) -> ClaimFinding:
    """Return the finding on a figure that uses the settings of a single sweep."""
    for (ratio, _), side in zip(one.sides(), sides, strict=True):
        if problem := selection_error(side) or missing_value(ratio, side):
            return make_finding(one, *problem)
    if one.figure.outcome is not None:
        outcomes = [outcome for group in sides[0].settings for outcome in ended(group)]
        times = outcomes.count(one.figure.outcome)
        return judge_estimate(one, share(times, len(outcomes), family, str(one.figure.unit)), sides[0].settings[:1])
    if one.figure.against is None:
        group, logs = _with_logs(sides[0], one.figure)[0]
        exact = exact_interval(group, one.figure, logs)
        estimate = exponential_estimate(exact or t_interval(list(logs.values()), family), str(one.figure.unit), family)
        return judge_estimate(one, estimate, [group], None if exact else disturbance_verdict([group], one.figure))
    return _ratio(one, sides, family, across)


def _ratio(one: StatedFigure, sides: Sequence[Side], family: Family, across: Collection[str]) -> ClaimFinding:
    """Return the finding on a ratio, or on a ratio of ratios."""
    known: list[_Logs] = []
    for number, ratio in enumerate(one.figure.ratios):
        pair = comparable(ratio, sides[2 * number], sides[2 * number + 1], across)
        if isinstance(pair, str):
            return make_finding(one, ClaimVerdict.not_testable, pair)
        known += pair
    settings, logs = [setting for setting, _ in known], [logs for _, logs in known]
    shared = set.intersection(*map(set, logs))
    if len(known) > 2 and not shared:
        return make_finding(one, ClaimVerdict.not_testable, "no block contains all four settings of the two ratios")
    interval = _ratio_of_ratios(logs, shared, family) if len(known) > 2 else log_ratio(logs[0], logs[1], family)
    if one.figure.metric in SIZE_METRICS and len(known) == 2:
        interval = with_search_brackets(settings[0], settings[1], interval)
    override = disturbance_verdict(settings, one.figure) or too_few_blocks(len(shared))
    return judge_estimate(one, exponential_estimate(interval, "1", family), settings, override)


_Logs = tuple[SettingRuns, dict[str, float]]
"""A setting, and the logarithms of a figure's metric keyed by block."""


def _with_logs(side: Side, figure: ClaimFigure) -> list[_Logs]:
    return [(group, logs) for group in side.settings if (logs := logs_of(group, figure))]


def comparable(figure: ClaimFigure, ours: Side, theirs: Side, across: Collection[str]) -> tuple[_Logs, _Logs] | str:
    """Return the pair of settings for a ratio that shares the most blocks, or why none may be compared."""
    allowed = (*across, *(key for side in figure.sides for key in side))
    pairs = list(product(_with_logs(ours, figure), _with_logs(theirs, figure)))
    refusals = [incompatibility(one[0], other[0], allowed, across) for one, other in pairs]
    comparable = [pair for pair, refusal in zip(pairs, refusals, strict=True) if refusal is None]
    if not comparable:
        return str(refusals[0])
    return max(comparable, key=lambda pair: len(pair[0][1].keys() & pair[1][1].keys()))


def _ratio_of_ratios(logs: Sequence[Mapping[str, float]], shared: Collection[str], family: Family) -> Interval:
    """Return the paired interval of log((a / b) / (c / d)) over the blocks that contain all four settings."""
    a, b, c, d = logs
    return t_interval([math.fsum((a[block], -b[block], -c[block], d[block])) for block in sorted(shared)], family)


def disturbance_verdict(settings: Sequence[SettingRuns], figure: ClaimFigure) -> VerdictReason | None:
    """Return the verdict if other load disturbed any of these settings; counted metrics cannot be disturbed."""
    if UNTIMED.issuperset(figure.metrics):
        return None
    reason = next(filter(None, map(disturbance, settings)), None)
    return None if reason is None else (ClaimVerdict.disturbed, reason)


def too_few_blocks(blocks: int, which: str = "that contain both sides") -> VerdictReason | None:
    """Return the verdict if a ratio covers too few blocks; the minimum is the same as for any other comparison."""
    if blocks >= MIN_PAIRS:
        return None
    return ClaimVerdict.undecided, f"a verdict needs {MIN_PAIRS} blocks {which}, and there are {blocks}"


def judge_estimate(
    one: StatedFigure, measured: Estimate, settings: Sequence[SettingRuns], override: VerdictReason | None = None
) -> ClaimFinding:
    """Return the finding on a measured figure; `override` replaces the interval's verdict if a value is claimed."""
    verdict = one.figure.verdict_on(measured.low, measured.high), measured.reason or ""
    if override is not None and one.figure.claimed is not None:
        verdict = override
    return make_finding(one, *verdict, measured, settings)


def make_finding(
    one: StatedFigure,
    verdict: ClaimVerdict,
    reason: str,
    measured: Estimate | None = None,
    settings: Sequence[SettingRuns] = (),
) -> ClaimFinding:
    """Return the finding on a figure, with the settings on which it was measured."""
    names = [*(group.setting for group in settings), None, None]
    return ClaimFinding(
        id=one.claim.id,
        statement=one.claim.statement,
        source=one.claim.source,
        figure=one.figure.name,
        analogue=one.analogue,
        metric=one.figure.metric,
        claimed=one.figure.claimed_text,
        measured=measured,
        verdict=verdict,
        reason=reason,
        differs=one.claim.differs,
        setting=names[0],
        against=names[1],
        labels=tuple(group.label for group in settings),
        doubts=tuple(dict.fromkeys(doubt for group in settings for run in measured_of(group) for doubt in run.doubts)),
        published=one.figure.published_values,
        unit=one.figure.unit,
    )
