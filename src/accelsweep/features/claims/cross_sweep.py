"""Figures of claims over several workloads, or on devices that were not measured.

A figure over an axis, or over sweeps, is the geometric mean over its workloads. Its interval is one over workloads: t's
quantile counts how few there are. A figure on a board that nobody measured is a projection, with the interval of one.
Projections of several workloads share the device, so that its error does not average out.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from accelsweep.analysis.analyse_sweep import Analysis
from accelsweep.analysis.collect import look_up
from accelsweep.analysis.comparability import difference
from accelsweep.analysis.compare_sweeps import MACHINE, one_machine_each
from accelsweep.analysis.costs import EPOCH_SAMPLES, PRICED_SAMPLES, RESULTS
from accelsweep.analysis.intervals import FEWEST_PAIRS, Family, exponential_estimate, mean, t_interval, welch_interval
from accelsweep.analysis.run_results import CellRuns, Reading, RunRow, group, in_order
from accelsweep.config.prices import Prices, usd_per_hour_on
from accelsweep.features.claims.judge import (
    Side,
    StatedFigure,
    comparable,
    disturbed,
    finding_of_figure,
    judge_claims,
    judged,
    logs_of,
    named,
    tested,
    too_few,
    unmeasured,
    unnamed,
)
from accelsweep.features.claims.model import (
    ClaimFigure,
    ClaimFinding,
    Claims,
    ClaimVerdict,
    bounds,
    claims_in,
    decide,
    factors,
)
from accelsweep.features.projection.analysis import projected_cell
from accelsweep.features.projection.model import Projected
from accelsweep.records.estimates import Range
from accelsweep.records.layout import SweepFolder
from accelsweep.records.plan import Manifest
from accelsweep.significant_digits import SECONDS_PER_HOUR, count_of

# Figures of claims between two sweeps, such as the same settings on one machine and on a cluster.


def judge_between(
    one: StatedFigure, others: Mapping[str, Sequence[CellRuns]], family: Family, across: Collection[str] = ()
) -> ClaimFinding:
    """Return the finding of a figure between two sweeps, of which `others` has those that are there."""
    figure = one.figure
    assert figure.between is not None, "asked of such figures only"
    sides: list[Side] = []
    for name, wanted in zip(figure.between, figure.sides, strict=True):
        if name not in others:
            why = f"there is no sweep {name} here; run the same experiment with --name {name} where it belongs"
            return finding_of_figure(one, ClaimVerdict.not_testable, why)
        side = named(wanted, others[name])
        if missing := unnamed(side) or unmeasured(figure, side):
            return finding_of_figure(one, missing[0], f"{name}: {missing[1]}")
        sides.append(side)
    if figure.between[0] == figure.between[1]:
        return tested(one, sides, family, across)
    return _apart(one, sides, family, across)


def _apart(one: StatedFigure, sides: Sequence[Side], family: Family, across: Collection[str]) -> ClaimFinding:
    pair = comparable(one.figure, sides[0], sides[1], across)
    refusal = pair if isinstance(pair, str) else None
    if not isinstance(pair, str) and MACHINE not in across:
        refusal = one_machine_each(pair[1][0], pair[0][0])
    if isinstance(pair, str) or refusal is not None:
        return finding_of_figure(one, ClaimVerdict.not_testable, str(refusal))
    (ours, our_logs), (theirs, their_logs) = pair
    interval = welch_interval(list(our_logs.values()), list(their_logs.values()), family)
    held = disturbed([ours, theirs], one.figure) or too_few(min(len(our_logs), len(their_logs)), "of each side")
    return judged(one, exponential_estimate(interval, "1", family), [ours, theirs], held)


PROJECTION_CONFIDENCE = 0.9
"""The confidence of a projection's interval."""

RATE_FIGURE = ClaimFigure(cell={"of": "what is projected"}, unit="1/s")
"""The figure that a setting must have to be projected: a rate."""


class _NoValue(Exception):
    """A workload has no value, and the message says why; `waits` if its runs are planned and have not run yet."""

    def __init__(self, why: str, *, waits: bool = False) -> None:
        super().__init__(why)
        self.waits = waits


@dataclass(frozen=True)
class _Workload:
    """One of the workloads of a figure: its name, the runs that it is looked up in, and the values of its sides."""

    name: str
    groups: Sequence[CellRuns]
    cell: Mapping[str, Any]
    against: Mapping[str, Any] | None


@dataclass(frozen=True)
class _Value:
    """A workload's value as a logarithm, half of its projection's interval (0 if measured), and its settings."""

    log: float
    half: float
    cells: tuple[CellRuns, ...]


@dataclass(frozen=True)
class WideFigures:
    """Judges figures over workloads and between sweeps.

    `others` are other sweeps' runs, `project` projects a setting onto a board.
    """

    others: Mapping[str, Sequence[CellRuns]]
    project: Callable[[CellRuns, str], Projected]
    across: Collection[str] = ()

    def __call__(self, one: StatedFigure, groups: Sequence[CellRuns], family: Family) -> ClaimFinding:
        """Return the finding of a figure; workloads without a value are named in its reason."""
        if one.figure.between is not None:
            return judge_between(one, self.others, family, self.across)
        found: list[_Value] = []
        missing: list[str] = []
        untested = ClaimVerdict.not_testable
        workloads = list(self._workloads(one, groups, missing))
        for workload in workloads:
            try:
                found.append(self._value(one, workload))
            except _NoValue as error:
                untested = ClaimVerdict.not_run if error.waits else untested
                missing.append(f"{workload.name}: {error}" if workload.name else str(error))
        several = one.figure.mean_over is not None or bool(one.figure.sweeps)
        if len(found) < (FEWEST_PAIRS if several else 1):
            return finding_of_figure(one, untested, "; ".join(missing) or "too few workloads")
        without = f"without {'; '.join(missing)}" if missing else ""
        return _together(one, found, family, without, several=several)

    def _workloads(self, one: StatedFigure, groups: Sequence[CellRuns], missing: list[str]) -> Iterator[_Workload]:
        figure = one.figure
        if figure.mean_over is not None:
            for value in _values(groups, figure.mean_over):
                against = None if figure.against is None else {**figure.against, figure.mean_over: value}
                yield _Workload(str(value), groups, {**figure.cell, figure.mean_over: value}, against)
        elif figure.sweeps:
            missing += [f"{name}: there is no such sweep here" for name in figure.sweeps if name not in self.others]
            for name in (name for name in figure.sweeps if name in self.others):
                yield _Workload(name, self.others[name], figure.cell, figure.against)
        else:
            yield _Workload("", groups, figure.cell, figure.against)

    def _value(self, one: StatedFigure, workload: _Workload) -> _Value:
        """Return a workload's value. Raises _NoValue."""
        onto = one.figure.projected is not None
        ours = _only(RATE_FIGURE if onto else one.figure, workload.cell, workload.groups)
        log, half = self._projected(one, ours) if onto else (_mean(ours, one), 0.0)
        if workload.against is None:
            return _Value(log, half, (ours,))
        theirs = _only(one.figure, workload.against, workload.groups)
        allowed = (*self.across, *workload.cell, *workload.against)
        if one.figure.projected is None and (why := difference(ours, theirs, allowed, self.across)):
            raise _NoValue(str(why))
        return _Value(log - _mean(theirs, one), half, (ours, theirs))

    def _projected(self, one: StatedFigure, group: CellRuns) -> tuple[float, float]:
        """Return the logarithm of the expression on the board, and half of its interval."""
        found = self.project(group, str(one.figure.projected))
        if found.rate is None:
            raise _NoValue(f"not projected: {found.reason}")
        half = max(math.log(found.rate.high / found.rate.value), math.log(found.rate.value / found.rate.low))
        total, rates = 0.0, 0
        for factor in factors(one.figure.metric):
            value = factor.of if isinstance(factor.of, float) else _on_board(factor.of, found)
            total += factor.exponent * math.log(value)
            rates += isinstance(factor.of, str) and factor.of != "usd_per_hour"
        return total, half * max(1, rates)


def _values(groups: Sequence[CellRuns], axis: str) -> list[Any]:
    """Return the values of an axis, each once, in the order of the grid."""
    found: list[Any] = []
    for value in (one.planned.axes[axis] for one in groups if axis in one.planned.axes):
        if value not in found:
            found.append(value)
    return found


def _on_board(metric: str, found: Projected) -> float:
    """Return a metric on the board that was projected onto. Raises _NoValue for a metric that no projection has."""
    assert found.rate is not None, "refused before"
    if metric == "samples_per_second":
        return found.rate.value
    if metric not in ("usd_per_hour", "usd_per_million_samples"):
        raise _NoValue(f"{metric} is not projected")
    if found.usd_per_hour is None:
        raise _NoValue(f"no price is given for the {found.name}")
    return found.usd_per_hour if metric == "usd_per_hour" else found.usd_per_hour / 3600 * 1e6 / found.rate.value


def _only(figure: ClaimFigure, wanted: Mapping[str, Any], groups: Sequence[CellRuns]) -> CellRuns:
    """Return the one setting with these values that has the figure's metric. Raises _NoValue."""
    side = named(wanted, groups)
    if missing := unnamed(side) or unmeasured(figure, side):
        raise _NoValue(missing[1], waits=missing[0] is ClaimVerdict.not_run)
    return next(group for group in side.cells if logs_of(group, figure))


def _mean(group: CellRuns, one: StatedFigure) -> float:
    return mean(list(logs_of(group, one.figure).values()))


def _together(
    one: StatedFigure, found: Sequence[_Value], family: Family, without: str, *, several: bool
) -> ClaimFinding:
    cells = [cell for value in found for cell in value.cells]
    held = disturbed(cells, one.figure)
    if one.figure.projected is None:
        estimate = exponential_estimate(
            t_interval([value.log for value in found], family), one.figure.unit or "1", family
        )
        reason = "; ".join(filter(None, (estimate.reason, without)))
        told = judged(one, estimate.model_copy(update={"reason": reason or None}), cells[:1], held)
        return told.model_copy(update={"labels": (_over(one, found),)})
    if held is not None and one.figure.against is not None:
        return finding_of_figure(one, *held, cells=cells[:1])
    spread = t_interval([value.log for value in found], Family(1, PROJECTION_CONFIDENCE)).half_width if several else 0.0
    half = math.hypot(mean([value.half for value in found]), spread or 0.0)
    middle = mean([value.log for value in found])
    value, low, high = (float(f"{math.exp(middle + sign * half):.2g}") for sign in (0, -1, 1))
    claimed, span = one.figure.claimed, Range(value=value, low=low, high=high)
    decision = (
        ClaimVerdict.measured if claimed is None else decide(span.low, span.high, bounds(claimed, one.figure.tolerance))
    )
    told = finding_of_figure(one, decision, without, cells=cells[:1])
    label = _over(one, found) if several else (cells[0].label or "the only setting")
    return told.model_copy(update={"projected": span, "board": one.figure.projected, "labels": (label,)})


def _over(one: StatedFigure, found: Sequence[_Value]) -> str:
    if one.figure.mean_over is None and not one.figure.sweeps:
        return found[0].cells[0].label
    what = "workload" if one.figure.mean_over is not None else "sweep"
    return f"geometric mean over {count_of(len(found), what)}"


# The other sweeps that a sweep's claims name, as far as they are there.


def other_sweeps(folder: SweepFolder, manifest: Manifest) -> dict[str, list[CellRuns]]:
    """Return the runs of each sweep that a figure of these claims names, of those that are there beside `folder`."""
    found = {}
    for name in dict.fromkeys(name for figure in _figures(manifest) for name in figure.named_sweeps):
        other = SweepFolder(folder.home, name)
        if other.manifest.exists():
            plan = Manifest.read(other.manifest)
            found[name] = group(plan, in_order(look_up(other, plan)))
    return found


def _figures(manifest: Manifest) -> list[ClaimFigure]:
    claims = claims_in(manifest.settings.report)
    analogues = [claim.analogue.figures for claim in claims if claim.analogue is not None]
    return [figure for figures in (*(claim.figures for claim in claims), *analogues) for figure in figures]


# The cost of a run, as metrics of the run: claims may name them like metrics that were measured.

PRICED: Mapping[str, str] = {
    "usd_per_hour": "USD/h",
    "usd_per_million_samples": "USD",
    "usd_per_epoch": "USD",
    "usd_per_result": "USD",
}
"""The metrics that prices add, with their units."""


def priced(group: CellRuns, prices: Prices) -> CellRuns:
    """Return the same runs with the metrics in `PRICED`; where there is none, it has the reason."""
    models = group.effective.device_names if group.effective else ()
    config = None if prices.unusable is not None else group.config
    rent = None if config is None else usd_per_hour_on(prices, config, models)
    return replace(group, runs=tuple(replace(run, metrics={**run.metrics, **_costs(run, rent)}) for run in group.runs))


def _costs(run: RunRow, rent: float | None) -> dict[str, Reading]:
    if rent is None:
        return {name: Reading(None, unit, "no price is given for its devices") for name, unit in PRICED.items()}
    rate, results, epoch = (run.value(name) for name in ("samples_per_second", RESULTS, EPOCH_SAMPLES))
    per_sample = rent / SECONDS_PER_HOUR / rate if rate else None
    values: dict[str, float | str] = {
        "usd_per_hour": rent,
        "usd_per_million_samples": per_sample * PRICED_SAMPLES if per_sample else "samples_per_second was not measured",
        "usd_per_epoch": per_sample * epoch if per_sample and epoch else "the size of the training data is not known",
        "usd_per_result": rent / results if results else "the run did not train to a target, or missed it",
    }
    return {name: _reading(value, PRICED[name]) for name, value in values.items()}


def _reading(value: float | str, unit: str) -> Reading:
    if isinstance(value, str):
        return Reading(None, unit, value)
    return Reading(value, unit, provenance="a price over a measured rate")


# The claims' part of the findings.


def build_section(analysis: Analysis) -> Claims | None:
    """Return the figures of the claims that the sweep tests; None where it states none."""
    return claims_beside(analysis, {} if analysis.folder is None else other_sweeps(analysis.folder, analysis.manifest))


def claims_beside(analysis: Analysis, others: Mapping[str, Sequence[CellRuns]]) -> Claims | None:
    """Return the figures of the claims, of which some name `others`, the sweeps that lie beside this one."""
    manifest = analysis.manifest
    rules, prices = manifest.settings.analysis, manifest.settings.prices
    wide = WideFigures(
        {name: [priced(one, prices) for one in runs] for name, runs in others.items()},
        lambda one, key: projected_cell(one, key, prices),
        rules.across,
    )
    known = [priced(one, prices) for one in analysis.groups]
    figures = judge_claims(claims_in(manifest.settings.report), known, rules.confidence, rules.across, wide)
    return Claims(figures=figures) if figures else None
