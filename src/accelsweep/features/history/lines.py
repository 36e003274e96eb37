"""Builds a history: a series for each setting and machine, with its level shifts.

A regression tree proposes changes. Whether they are significant is determined by a simultaneous confidence interval for
each step.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import scipy

from accelsweep.analysis.baseline_comparison import disturbance, rate_estimate
from accelsweep.analysis.intervals import Family, Interval, critical_t, exponential_estimate, mean, variance
from accelsweep.analysis.merge_sweeps import Part
from accelsweep.analysis.run_results import RunRow, group_runs, sorted_runs
from accelsweep.config.setting import label, setting_name
from accelsweep.config.versions import without_version
from accelsweep.errors import InputError
from accelsweep.features.history.model import History, HistoryLine, LinePoint, Order, RateChange, software_between
from accelsweep.records.estimates import Verdict
from accelsweep.run_config import VERSION
from accelsweep.run_environment import HardwareKind, hardware_names
from accelsweep.significant_digits import count_of

MIN_POINTS = 4
"""No changes are reported in shorter series, because the next point could undo them."""

_ROUNDING = 1e-9
"""A relative spread below this is rounding error, not noise."""

_MEDIAN_DIFFERENCE = math.sqrt(2.0) * float(scipy.special.ndtri(0.75))
"""The median absolute difference between two normally distributed values with standard deviation 1."""


@dataclass(frozen=True)
class Level:
    """A point's log rate, and its squared standard error over repeats, or None for a single repeat."""

    value: float
    squared_error: float | None

    @classmethod
    def of(cls, log_rates: Sequence[float]) -> Level:
        """Return the mean of a point's repeats."""
        return cls(mean(log_rates), variance(log_rates) / len(log_rates) if len(log_rates) > 1 else None)


@dataclass(frozen=True)
class LevelStep:
    """A step before the point with the zero-based index `at`, on the log scale."""

    at: int
    interval: Interval

    @property
    def strength(self) -> float:
        """The step's size in half-widths of its interval; 0 if there is no interval."""
        half = self.interval.half_width
        return abs(self.interval.center) / half if half else 0.0


def level_steps(points: Sequence[Level], family: Family) -> tuple[LevelStep, ...]:
    """Return a series' significant steps, in order. `family` is the number of possible steps in all series."""
    if len(points) < MIN_POINTS:
        return ()
    known = [point.squared_error for point in points if point.squared_error is not None]
    typical = math.fsum(known) / len(known) if known else 0.0
    errors = [typical if point.squared_error is None else point.squared_error for point in points]
    values = [point.value for point in points]
    places = _proposed_places(values, typical)
    while places:
        steps = [_step(values, errors, places, number, family) for number in range(len(places))]
        weakest = min(steps, key=lambda step: (step.strength, abs(step.interval.center)))
        if weakest.strength > 1.0:
            return tuple(steps)
        places.remove(weakest.at)  # this merges two levels, so all intervals are recomputed
    return ()


def _proposed_places(values: Sequence[float], squared_error: float) -> list[int]:
    """Return the indices of the points before which the pruned tree splits."""
    from sklearn.tree import DecisionTreeRegressor  # slow to import, and unnecessary for short series

    noise = math.sqrt(max(_neighbour_variance(values), squared_error, _ROUNDING**2))
    count = len(values)
    penalty = 2.0 * math.log(count) / count  # Schwarz's criterion; the tree's cost is a mean over points, not a sum
    tree = DecisionTreeRegressor(ccp_alpha=penalty, random_state=0)
    tree.fit(np.arange(count).reshape(-1, 1), np.asarray(values) / noise)
    nodes = tree.tree_
    return sorted(math.floor(nodes.threshold[node]) + 1 for node in range(nodes.node_count) if nodes.feature[node] == 0)


def _neighbour_variance(values: Sequence[float]) -> float:
    """Return the noise variance from the median absolute difference between neighbours; robust to a few changes."""
    return (float(np.median(np.abs(np.diff(values)))) / _MEDIAN_DIFFERENCE) ** 2


def _step(
    values: Sequence[float], errors: Sequence[float], places: Sequence[int], number: int, family: Family
) -> LevelStep:
    """Return a proposed step with its interval.

    The noise is the scatter of points around their levels, pooled over the series. Because fitting the levels reduces
    the scatter, the noise is assumed to be at least as large as the noise between neighbouring points and the noise of
    the repeats within a point.
    """
    ends = [0, *places, len(values)]
    parts = [values[a:b] for a, b in pairwise(ends)]
    center, degrees = mean(parts[number + 1]) - mean(parts[number]), len(values) - len(parts)
    count = min(len(parts[number]), len(parts[number + 1]))
    if degrees < 1:
        return LevelStep(places[number], Interval(center, None, count, "each point is its own level"))
    pooled = math.fsum(variance(part) * (len(part) - 1) for part in parts if len(part) > 1) / degrees
    pooled = max(pooled, _neighbour_variance(values))
    squared = 0.0
    for a, b in ((ends[number], ends[number + 1]), (ends[number + 1], ends[number + 2])):
        squared += max(pooled / (b - a), math.fsum(errors[a:b]) / (b - a) ** 2)
    if math.sqrt(squared) <= _ROUNDING:
        return LevelStep(places[number], Interval(center, None, count, "the points of each level are identical"))
    half = critical_t(degrees, family.confidence, family.size) * math.sqrt(squared)
    return LevelStep(places[number], Interval(center, half, count))


class LineKey(NamedTuple):
    """What all points of a series share: the setting without its version, and the machine."""

    setting: str
    hardware: HardwareKind
    machine: str | None
    rate_metric: str


@dataclass(frozen=True)
class PlacedPoint:
    """A point with its series and level. `began` and `number` order points that belong to the same sweep."""

    key: LineKey
    axes: Mapping[str, Any]
    rate_unit: str
    level: Level
    began: str
    number: int
    point: LinePoint


class _Origin(NamedTuple):
    """The attributes by which a setting's runs in one sweep are split into points."""

    machine: str | None
    commit: str | None
    local_changes: bool | None


def points_of(part: Part, seen: set[str], committed: Mapping[str, str], confidence: float) -> Iterator[PlacedPoint]:
    """Yield a sweep's points, skipping records in `seen` and adding the sweep's records to it."""
    node_of = {block.name: block.resources.node for block in part.manifest.blocks}
    new = (row for row in sorted_runs(part.runs) if row.record_sha256 not in seen)
    rows = [_on_node(row, node) if (node := node_of.get(row.block or "")) else row for row in new]
    seen |= {row.record_sha256 for row in rows if row.record_sha256 is not None}
    began = min((row.started_at for row in rows if row.started_at), default="")
    order = {version.name: number for number, version in enumerate(part.manifest.compared)}
    for setting in group_runs(part.manifest, rows):
        version = str(setting.planned.axes.get(VERSION, ""))
        raw = setting.config.raw if setting.config is not None and setting.config.version is not None else None
        name = setting.setting if raw is None else setting_name(without_version(raw))
        by_origin: dict[_Origin, list[RunRow]] = {}
        for run in setting.rated:
            by_origin.setdefault(_origin(run), []).append(run)
        for origin, runs in by_origin.items():
            narrowed = replace(setting, runs=tuple(runs))
            if (rate := rate_estimate(narrowed, confidence)) is None or not runs[0].started_at:
                continue
            measured = min(run.started_at for run in runs if run.started_at)
            yield PlacedPoint(
                key=LineKey(name, setting.hardware, origin.machine, setting.rate_metric),
                axes=without_version(setting.planned.axes),
                rate_unit=narrowed.rate_unit,
                level=Level.of(list(narrowed.log_rates.values())),
                began=began if order else measured,
                number=order.get(version, 0),
                point=LinePoint(
                    name=_point_name(origin, measured),
                    source=part.name,
                    version=version or None,
                    commit=origin.commit,
                    local_changes=origin.local_changes,
                    committed=committed.get(origin.commit or ""),
                    measured=measured,
                    rate=rate,
                    disturbed=disturbance(narrowed),
                    software=dict(runs[-1].software),
                ),
            )


def _point_name(origin: _Origin, measured: str) -> str:
    """Return the short commit hash, with a plus for local changes, or else the measurement time, to the minute."""
    if origin.commit is None:
        return measured[:16].replace("T", " ")
    return origin.commit[:7] + ("+" if origin.local_changes else "")


def _on_node(run: RunRow, node: str) -> RunRow:
    """Return a fleet's run with its node as the machine.

    The driver is treated as software, so that driver changes are shown.
    """
    facts = {fact: value for fact, value in run.hardware.facts if fact != "driver"}
    driver = {"driver": run.hardware.driver} if run.hardware.driver else {}
    return replace(
        run,
        hardware=HardwareKind.of(facts),
        software={**run.software, **driver},
        environment=run.surroundings.with_machine(node),
    )


def commits_in(parts: Sequence[Part]) -> Collection[str]:
    """Return the commits at which these sweeps were measured."""
    origins = (_origin(run) for part in parts for run in part.runs if run.recorded)
    return {origin.commit for origin in origins if origin.commit is not None}


def _origin(run: RunRow) -> _Origin:
    """Return a run's origin.

    For a version of `ab`, the commit is that of the version, not the one that is checked out.
    """
    commit, local_changes = run.checkout
    version = run.config.version if run.config is not None else None
    if version is not None and version.kind == "commit":
        commit, local_changes = version.digest, False
    return _Origin(run.machine, commit, local_changes)


def history_of(parts: Sequence[Part], committed: Mapping[str, str]) -> History:
    """Return the history of several sweeps, using the last sweep's confidence.

    `committed` maps known commits to their dates. Raises InputError if no run has a rate, or no setting has two points.
    """
    confidence, seen = parts[-1].manifest.options.analysis.confidence, set[str]()
    placed = [point for part in parts for point in points_of(part, seen, committed, confidence)]
    if not placed:
        sources = ", ".join(part.name for part in parts)
        raise InputError(f"no run in {sources} has a rate, so there is no history: measure them first")
    order, reason = _order(placed)
    lines: dict[LineKey, list[PlacedPoint]] = {}
    for point in sorted(placed, key=lambda point: _sort_key(point, order)):
        lines.setdefault(point.key, []).append(point)
    names = hardware_names(key.hardware for key in lines)
    several = {key: points for key, points in lines.items() if len(points) > 1}
    if not several:
        raise InputError(_why_no_line(lines, names))
    family = Family(max(1, sum(_places(points) for points in several.values())), confidence)
    return History(
        sources=tuple(part.name for part in parts),
        order=order,
        order_reason=reason,
        confidence=confidence,
        family=family.size,
        lines=tuple(_line(key, points, names, family) for key, points in several.items()),
        alone=tuple(label(points[0].axes) for points in lines.values() if len(points) == 1),
    )


def _order(placed: Sequence[PlacedPoint]) -> tuple[Order, str]:
    unknown = sum(point.point.committed is None for point in placed)
    if not unknown:
        return Order.commit_date, "the commit of every point is in this repository"
    many = f"{unknown} of {count_of(len(placed), 'point')}"
    return Order.measurement_date, f"the commit date of {many} is unknown here"


def _sort_key(point: PlacedPoint, order: Order) -> tuple[str, str, int, str]:
    committed = (point.point.committed or "") if order is Order.commit_date else ""
    return committed, point.began, point.number, point.point.measured


def _undisturbed(points: Sequence[PlacedPoint]) -> list[int]:
    return [number for number, point in enumerate(points) if point.point.disturbed is None]


def _places(points: Sequence[PlacedPoint]) -> int:
    count = len(_undisturbed(points))
    return count - 1 if count >= MIN_POINTS else 0


def _line(
    key: LineKey, points: Sequence[PlacedPoint], names: Mapping[HardwareKind, str], family: Family
) -> HistoryLine:
    counted = _undisturbed(points)
    steps = level_steps([points[number].level for number in counted], family)
    few = f"{count_of(len(counted), 'undisturbed point')}, and detecting a change takes {MIN_POINTS}"
    last = points[-1]
    return HistoryLine(
        setting=key.setting,
        label=label(last.axes),
        axes=dict(last.axes),
        hardware=names.get(key.hardware, "unknown hardware"),
        machine=key.machine,
        rate_unit=last.rate_unit,
        points=tuple(point.point for point in points),
        changes=tuple(_change(step, counted, points, family) for step in steps),
        reason=few if len(counted) < MIN_POINTS else "",
    )


def _change(step: LevelStep, counted: Sequence[int], points: Sequence[PlacedPoint], family: Family) -> RateChange:
    before, after = points[counted[step.at - 1]].point, points[counted[step.at]].point
    return RateChange(
        at=counted[step.at],
        ratio=exponential_estimate(step.interval, "1", family),
        verdict=Verdict.faster if step.interval.center > 0 else Verdict.slower,
        software=software_between(before, after),
    )


def _why_no_line(lines: Mapping[LineKey, Sequence[PlacedPoint]], names: Mapping[HardwareKind, str]) -> str:
    """Explain why every setting has only one point: a single sweep, different settings, or different machines."""
    machines = {(key.hardware, key.machine) for key in lines}
    settings = {key.setting for key in lines}
    message = f"{count_of(len(settings), 'setting')} with one point each, so there is no history"
    if len(machines) > 1 and len(settings) < len(lines):
        listed = ", ".join(sorted({names.get(key.hardware, "unknown hardware") for key in lines}))
        return f"{message}: the sweeps ran on {len(machines)} machines ({listed}), and machines are not mixed"
    return f"{message}: name more sweeps of the same settings, or measure this one again at another commit"
