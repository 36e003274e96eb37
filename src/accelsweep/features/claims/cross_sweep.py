"""Composite figures of claims (over workloads, between sweeps, projected onto boards), and the report section.

A figure over an axis or over sweeps is the geometric mean over its workloads, with a Student's t interval over them. A
projected figure uses the projection's interval. Projections of several workloads share one device, so the device's
error does not average out.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from accelsweep.analysis.analyse_sweep import Analysis
from accelsweep.analysis.collect import read_runs
from accelsweep.analysis.comparability import incompatibility
from accelsweep.analysis.compare_sweeps import MACHINE, single_machine_refusal
from accelsweep.analysis.costs import EPOCH_SAMPLES, PRICED_SAMPLES, RESULTS
from accelsweep.analysis.intervals import MIN_PAIRS, Family, exponential_estimate, mean, t_interval, welch_interval
from accelsweep.analysis.run_results import SettingRuns, group_runs, sorted_runs
from accelsweep.config.prices import Prices, usd_per_hour_on
from accelsweep.features.claims.judge import (
    Side,
    StatedFigure,
    comparable,
    disturbance_verdict,
    judge_claims,
    judge_estimate,
    judge_in_sweep,
    logs_of,
    make_finding,
    missing_value,
    select_settings,
    selection_error,
    too_few_blocks,
)
from accelsweep.features.claims.model import ClaimFigure, ClaimFinding, Claims, ClaimVerdict, claims_in, factors
from accelsweep.features.projection.analysis import project_setting
from accelsweep.features.projection.model import Projection, Range
from accelsweep.metrics import Metric
from accelsweep.records.layout import SweepFolder
from accelsweep.records.plan import Manifest
from accelsweep.significant_digits import SECONDS_PER_HOUR, count_of

PROJECTION_CONFIDENCE = 0.9
"""The confidence of a projection's interval."""

RATE_FIGURE = ClaimFigure(setting={"of": "what is projected"}, unit="1/s")
"""The figure that a setting must have in order to be projected: its rate."""


def build_section(analysis: Analysis) -> Claims | None:
    """Return the figures of the sweep's claims; None if there are no claims."""
    return judge_section(analysis, {} if analysis.folder is None else other_sweeps(analysis.folder, analysis.manifest))


def judge_section(analysis: Analysis, others: Mapping[str, Sequence[SettingRuns]]) -> Claims | None:
    """Return the figures of the claims; `others` contains runs of the other sweeps that figures refer to."""
    options = analysis.manifest.options
    claims = claims_in(options.report)
    if not claims:
        return None
    judge = CompositeJudge(
        {name: [with_costs(group, options.prices) for group in groups] for name, groups in others.items()},
        lambda group, board: project_setting(group, board, options.prices),
        options.analysis.across,
    )
    groups = [with_costs(group, options.prices) for group in analysis.groups]
    confidence, across = options.analysis.confidence, options.analysis.across
    figures = judge_claims(claims, groups, confidence, across, judge)
    return Claims(figures=figures) if figures else None


def other_sweeps(folder: SweepFolder, manifest: Manifest) -> dict[str, list[SettingRuns]]:
    """Return the runs of the sweeps that figures refer to, if they exist next to `folder`."""
    names = []
    for claim in claims_in(manifest.options.report):
        analogue = claim.analogue.figures if claim.analogue is not None else ()
        names += [name for figure in (*claim.figures, *analogue) for name in figure.named_sweeps]
    sweeps = {}
    for name in dict.fromkeys(names):
        other = SweepFolder(folder.home, name)
        if other.manifest.exists():
            plan = Manifest.read(other.manifest)
            sweeps[name] = group_runs(plan, sorted_runs(read_runs(other, plan)))
    return sweeps


COST_UNITS: Mapping[str, str] = {
    "usd_per_hour": "USD/h",
    "usd_per_million_samples": "USD",
    "usd_per_epoch": "USD",
    "usd_per_result": "USD",
}
"""The price-derived metrics that claims can refer to, with their units."""


def with_costs(group: SettingRuns, prices: Prices) -> SettingRuns:
    """Return the runs with the metrics in `COST_UNITS`, each with a value or a reason."""
    models = group.effective.device_names if group.effective else ()
    rent = None if group.config is None else usd_per_hour_on(prices, group.config, models)
    runs = []
    for run in group.runs:
        costs: dict[str, float | str] = dict.fromkeys(COST_UNITS, "no price is given for its devices")
        if rent is not None:
            rate, results, epoch = (run.value(name) for name in ("samples_per_second", RESULTS, EPOCH_SAMPLES))
            sample = rent / SECONDS_PER_HOUR / rate if rate else None
            costs = {
                "usd_per_hour": rent,
                "usd_per_million_samples": sample * PRICED_SAMPLES if sample else "samples_per_second was not measured",
                "usd_per_epoch": sample * epoch if sample and epoch else "the size of the training data is unknown",
                "usd_per_result": rent / results if results else "the run did not train to a target, or missed it",
            }
        readings = {
            name: Metric(None, COST_UNITS[name], cost)
            if isinstance(cost, str)
            else Metric(cost, COST_UNITS[name], provenance="a price over a measured rate")
            for name, cost in costs.items()
        }
        runs.append(replace(run, metrics={**run.metrics, **readings}))
    return replace(group, runs=tuple(runs))


class _NoValue(Exception):
    """A workload has no value; the message explains why. `pending` means that its planned runs have not run yet."""

    def __init__(self, reason: str, *, pending: bool = False) -> None:
        super().__init__(reason)
        self.pending = pending


@dataclass(frozen=True)
class _Workload:
    """A figure's workload: its name, the settings to select from, and its selections."""

    name: str
    groups: Sequence[SettingRuns]
    setting: Mapping[str, Any]
    against: Mapping[str, Any] | None


@dataclass(frozen=True)
class _Value:
    """A workload's log value, the half-width of its projection interval (0 if measured), and its settings."""

    log: float
    half: float
    settings: tuple[SettingRuns, ...]


@dataclass(frozen=True)
class CompositeJudge:
    """Judges composite figures. `others` contains other sweeps' runs; `project` projects a setting onto a board."""

    others: Mapping[str, Sequence[SettingRuns]]
    project: Callable[[SettingRuns, str], Projection]
    across: Collection[str] = ()

    def __call__(self, one: StatedFigure, groups: Sequence[SettingRuns], family: Family) -> ClaimFinding:
        """Return the finding on a figure; its reason lists the workloads without a value."""
        if one.figure.between is not None:
            return self._between(one, family)
        values: list[_Value] = []
        missing = [f"{name}: there is no such sweep here" for name in one.figure.sweeps if name not in self.others]
        untested = ClaimVerdict.not_testable
        for workload in self._workloads(one.figure, groups):
            try:
                values.append(self._value(one.figure, workload))
            except _NoValue as error:
                untested = ClaimVerdict.not_run if error.pending else untested
                missing.append(f"{workload.name}: {error}" if workload.name else str(error))
        several = one.figure.mean_over is not None or bool(one.figure.sweeps)
        if len(values) < (MIN_PAIRS if several else 1):
            return make_finding(one, untested, "; ".join(missing) or "too few workloads")
        without = f"without {'; '.join(missing)}" if missing else ""
        if one.figure.projected is None:
            return _measured_mean(one, values, family, without)
        return _projected_mean(one, values, without, several=several)

    def _between(self, one: StatedFigure, family: Family) -> ClaimFinding:
        """Return the finding on a figure that compares two sweeps."""
        figure = one.figure
        assert figure.between is not None, "only for such figures"
        sides: list[Side] = []
        for name, wanted in zip(figure.between, figure.sides, strict=True):
            if name not in self.others:
                reason = f"there is no sweep {name} here; run the same experiment with --name {name} on its machine"
                return make_finding(one, ClaimVerdict.not_testable, reason)
            side = select_settings(wanted, self.others[name])
            if problem := selection_error(side) or missing_value(figure, side):
                return make_finding(one, problem[0], f"{name}: {problem[1]}")
            sides.append(side)
        if figure.between[0] == figure.between[1]:
            return judge_in_sweep(one, sides, family, self.across)
        pair = comparable(figure, sides[0], sides[1], self.across)
        if isinstance(pair, str):
            return make_finding(one, ClaimVerdict.not_testable, pair)
        (ours, our_logs), (theirs, their_logs) = pair
        if MACHINE not in self.across and (refusal := single_machine_refusal(theirs, ours)) is not None:
            return make_finding(one, ClaimVerdict.not_testable, str(refusal))
        # Blocks of two sweeps are unrelated even if their names are the same, so the comparison is unpaired.
        interval = welch_interval(list(our_logs.values()), list(their_logs.values()), family)
        blocks = min(len(our_logs), len(their_logs))
        override = disturbance_verdict([ours, theirs], figure) or too_few_blocks(blocks, "of each side")
        return judge_estimate(one, exponential_estimate(interval, "1", family), [ours, theirs], override)

    def _workloads(self, figure: ClaimFigure, groups: Sequence[SettingRuns]) -> Iterator[_Workload]:
        axis = figure.mean_over
        if axis is not None:
            values: list[Any] = []
            for value in (one.planned.axes[axis] for one in groups if axis in one.planned.axes):
                if value not in values:  # values may be unhashable
                    values.append(value)
            for value in values:
                against = None if figure.against is None else {**figure.against, axis: value}
                yield _Workload(str(value), groups, {**figure.setting, axis: value}, against)
        elif figure.sweeps:
            for name in (name for name in figure.sweeps if name in self.others):
                yield _Workload(name, self.others[name], figure.setting, figure.against)
        else:
            yield _Workload("", groups, figure.setting, figure.against)

    def _value(self, figure: ClaimFigure, workload: _Workload) -> _Value:
        """Return a workload's value. Raises _NoValue."""
        if figure.projected is None:
            ours = _select_one(figure, workload.setting, workload.groups)
            log, half = _mean_log(ours, figure), 0.0
        else:
            ours = _select_one(RATE_FIGURE, workload.setting, workload.groups)
            log, half = _projected_log(figure, self.project(ours, figure.projected))
        if workload.against is None:
            return _Value(log, half, (ours,))
        theirs = _select_one(figure, workload.against, workload.groups)
        allowed = (*self.across, *workload.setting, *workload.against)
        if figure.projected is None and (refusal := incompatibility(ours, theirs, allowed, self.across)):
            raise _NoValue(str(refusal))
        return _Value(log - _mean_log(theirs, figure), half, (ours, theirs))


def _select_one(figure: ClaimFigure, wanted: Mapping[str, Any], groups: Sequence[SettingRuns]) -> SettingRuns:
    """Return the only setting with these values and the figure's metric. Raises _NoValue otherwise."""
    side = select_settings(wanted, groups)
    if problem := selection_error(side) or missing_value(figure, side):
        raise _NoValue(problem[1], pending=problem[0] is ClaimVerdict.not_run)
    return next(group for group in side.settings if logs_of(group, figure))


def _mean_log(group: SettingRuns, figure: ClaimFigure) -> float:
    return mean(list(logs_of(group, figure).values()))


def _projected_log(figure: ClaimFigure, projection: Projection) -> tuple[float, float]:
    """Return the logarithm of the expression on the board, and the half-width of its interval. Raises _NoValue."""
    rate, usd = projection.rate, projection.usd_per_hour
    if rate is None:
        raise _NoValue(f"not projected: {projection.reason}")
    half = max(math.log(rate.high / rate.value), math.log(rate.value / rate.low))
    total, rates = 0.0, 0
    for factor in factors(figure.metric):
        match factor.operand:
            case float(number):
                value = number
            case "samples_per_second":
                value = rate.value
            case "usd_per_hour" | "usd_per_million_samples" as metric:
                if usd is None:
                    raise _NoValue(f"no price is given for the {projection.name}")
                value = usd if metric == "usd_per_hour" else usd / SECONDS_PER_HOUR * 1e6 / rate.value
            case metric:
                raise _NoValue(f"{metric} is not projected")
        total += factor.exponent * math.log(value)
        rates += factor.operand in ("samples_per_second", "usd_per_million_samples")
    return total, half * max(1, rates)


def _measured_mean(one: StatedFigure, values: Sequence[_Value], family: Family, without: str) -> ClaimFinding:
    settings = [setting for value in values for setting in value.settings]
    interval = t_interval([value.log for value in values], family)
    estimate = exponential_estimate(interval, one.figure.unit or "1", family)
    reason = "; ".join(filter(None, (estimate.reason, without)))
    estimate = estimate.model_copy(update={"reason": reason or None})
    finding = judge_estimate(one, estimate, settings[:1], disturbance_verdict(settings, one.figure))
    return finding.model_copy(update={"labels": (_mean_label(one.figure, values),)})


def _projected_mean(one: StatedFigure, values: Sequence[_Value], without: str, *, several: bool) -> ClaimFinding:
    settings = [setting for value in values for setting in value.settings]
    override = disturbance_verdict(settings, one.figure)
    if override is not None and one.figure.against is not None:
        return make_finding(one, *override, settings=settings[:1])
    logs = [value.log for value in values]
    spread = t_interval(logs, Family(1, PROJECTION_CONFIDENCE)).half_width if several else None
    half = math.hypot(mean([value.half for value in values]), spread or 0.0)
    value, low, high = (float(f"{math.exp(mean(logs) + sign * half):.2g}") for sign in (0, -1, 1))
    finding = make_finding(one, one.figure.verdict_on(low, high), without, settings=settings[:1])
    label = _mean_label(one.figure, values) if several else (settings[0].label or "the only setting")
    projected = Range(value=value, low=low, high=high)
    return finding.model_copy(update={"projected": projected, "board": one.figure.projected, "labels": (label,)})


def _mean_label(figure: ClaimFigure, values: Sequence[_Value]) -> str:
    return f"geometric mean over {count_of(len(values), 'sweep' if figure.sweeps else 'workload')}"
