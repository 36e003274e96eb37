"""Figures of claims over several workloads, or on devices that were not measured.

A figure over an axis, or over sweeps, is the geometric mean over its workloads. Its interval is one over workloads: t's
quantile counts how few there are. A figure on a board that nobody measured is a projection, with the interval of one.
Projections of several workloads share the device, so that its error does not average out.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from accelsweep.analyse.claims.between import judge_between
from accelsweep.analyse.claims.judge import StatedFigure, disturbed, finding_of_figure, judged
from accelsweep.analyse.claims.named import named
from accelsweep.analyse.claims.values import logs_of, unmeasured, unnamed
from accelsweep.analysis.comparability import difference
from accelsweep.analysis.intervals import FEWEST_PAIRS, Family, exponential_estimate, mean, t_interval
from accelsweep.analysis.run_results import CellRuns
from accelsweep.core.claims.claims import ClaimFigure
from accelsweep.core.claims.expressions import factors
from accelsweep.core.claims.verdicts import ClaimVerdict, bounds, decide
from accelsweep.core.findings.judged import ClaimFinding
from accelsweep.core.findings.projections import Projected
from accelsweep.records.estimates import Range
from accelsweep.significant_digits import count_of

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
    for value in (group.planned.axes[axis] for group in groups if axis in group.planned.axes):
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
