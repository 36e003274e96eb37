"""The lines of a history: points in order, never of two machines or of two settings, and where a line changes."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from scipy import special

from accelsweep.analysis.baseline_comparison import disturbance, own_rate
from accelsweep.analysis.intervals import Family, Interval, critical_t, exponential_estimate, mean, variance
from accelsweep.analysis.merge_sweeps import Part
from accelsweep.analysis.run_results import CellRuns, RunRow, group, in_order
from accelsweep.config.setting import cell_name, label
from accelsweep.config.versions import VERSION, without_version
from accelsweep.errors import InputError
from accelsweep.json_documents import Frozen
from accelsweep.records.estimates import Estimate, Verdict
from accelsweep.records.run_environment import HardwareKind, names_of
from accelsweep.significant_digits import count_of

# Changes of level in a series of rates: a segmentation proposes, and an interval for each step decides.

FEWEST_POINTS = 4
"""A series of fewer points has no change: what one more point would do to it is not known."""

_NO_SPREAD = 1e-9
"""A relative spread below this is rounding, not noise."""

_MEDIAN = math.sqrt(2.0) * float(special.ndtri(0.75))
"""The median size of the difference of two values whose noise is 1."""


@dataclass(frozen=True)
class Level:
    """A point: the logarithm of a rate, and the squared standard error that its own repeats show; None for one."""

    value: float
    own_variance: float | None

    @classmethod
    def of(cls, log_rates: Sequence[float]) -> Level:
        """Return the mean of a point's repeats."""
        own = variance(log_rates) / len(log_rates) if len(log_rates) > 1 else None
        return cls(mean(log_rates), own)


@dataclass(frozen=True)
class LevelStep:
    """A step of a series before the point number `at` (from 0), on the logarithmic scale."""

    at: int
    interval: Interval

    @property
    def strength(self) -> float:
        """The size of the step in half-widths of its interval; 0 without an interval."""
        half = self.interval.half_width
        return abs(self.interval.center) / half if half else 0.0


def level_steps(points: Sequence[Level], family: Family) -> tuple[LevelStep, ...]:
    """Return the supported steps of a series, in its order. `family` is one over the places of all series."""
    if len(points) < FEWEST_POINTS:
        return ()
    known = [point.own_variance for point in points if point.own_variance is not None]
    usual = math.fsum(known) / len(known) if known else 0.0
    own = [usual if point.own_variance is None else point.own_variance for point in points]
    values = [point.value for point in points]
    places = _proposed(values, usual)
    while places:
        found = [_step(values, own, places, number, family) for number in range(len(places))]
        weakest = min(found, key=lambda step: (step.strength, abs(step.interval.center)))
        if weakest.strength > 1.0:
            return tuple(found)
        places.remove(weakest.at)  # the levels beside it become one, which makes the others' intervals anew
    return ()


def _proposed(values: Sequence[float], usual: float) -> list[int]:
    """Return the numbers of the points before which the pruned tree sets a change."""
    from sklearn.tree import DecisionTreeRegressor  # takes a second, and a short series has no change anyway

    noise = math.sqrt(max(_between(values), usual, _NO_SPREAD**2))
    count = len(values)
    penalty = 2.0 * math.log(count) / count  # the tree's cost is a mean over the points, not a sum
    tree = DecisionTreeRegressor(ccp_alpha=penalty, random_state=0)
    tree.fit(np.arange(count).reshape(-1, 1), np.asarray(values) / noise)
    grown = tree.tree_
    return sorted(math.floor(grown.threshold[node]) + 1 for node in range(grown.node_count) if grown.feature[node] == 0)


def _between(values: Sequence[float]) -> float:
    """Return the variance between neighbours by the median of their differences, which few changes do not move."""
    return (float(np.median(np.abs(np.diff(values)))) / _MEDIAN) ** 2


def _step(
    values: Sequence[float], own: Sequence[float], places: Sequence[int], number: int, family: Family
) -> LevelStep:
    """Return one of the proposed steps with its interval.

    The noise of a level is what the points scatter around their levels, pooled over the series. It is never less than
    what neighbours differ by, because levels are set where they fit, nor than what the repeats within its points show.
    """
    ends = [0, *places, len(values)]
    parts = [values[a:b] for a, b in pairwise(ends)]
    center, degrees = mean(parts[number + 1]) - mean(parts[number]), len(values) - len(parts)
    count = min(len(parts[number]), len(parts[number + 1]))
    if degrees < 1:
        return LevelStep(places[number], Interval(center, None, count, "each point is a level of its own"))
    pooled = math.fsum(variance(part) * (len(part) - 1) for part in parts if len(part) > 1) / degrees
    pooled = max(pooled, _between(values))
    squared = 0.0
    for a, b in ((ends[number], ends[number + 1]), (ends[number + 1], ends[number + 2])):
        squared += max(pooled / (b - a), math.fsum(own[a:b]) / (b - a) ** 2)
    if math.sqrt(squared) <= _NO_SPREAD:
        return LevelStep(places[number], Interval(center, None, count, "the points of each level are identical"))
    half = critical_t(degrees, family.confidence, family.size) * math.sqrt(squared)
    return LevelStep(places[number], Interval(center, half, count))


# The rate of settings over commits or dates: lines of points on one machine each, and where a line changes.


class Order(StrEnum):
    """The order of the points of all lines."""

    commit_date = "commit date"
    measurement_date = "date of measurement"


class LinePoint(Frozen):
    """A setting's rate in one sweep, at one commit.

    `source` is the sweep, or the archive that holds it; `version` the name that was typed for `ab`. `commit` is None
    where none was recorded, `local_changes` says whether files differed from it. Times are UTC in ISO 8601; `committed`
    is None where the commit is not in this repository. `disturbed` says why the point does not count for changes.
    """

    source: str
    version: str | None
    commit: str | None
    local_changes: bool | None
    committed: str | None
    measured: str
    rate: Estimate
    disturbed: str | None
    software: dict[str, str]

    @property
    def name(self) -> str:
        """The commit in short, with a plus for local changes; else the minute of the measurement."""
        if self.commit is None:
            return self.measured[:16].replace("T", " ")
        return self.commit[:7] + ("+" if self.local_changes else "")

    @property
    def day(self) -> str:
        """The day of the commit where it is known, else that of the measurement."""
        return (self.committed or self.measured)[:10]


class RateChange(Frozen):
    """A change of a line's level. `at` is the number, from 0, of the first point after it.

    `ratio` is the level after to that before, `software` says which packages changed at the same place.
    """

    at: int
    ratio: Estimate
    verdict: Verdict
    software: tuple[str, ...]


class HistoryLine(Frozen):
    """One setting on one machine. `reason` says why no change was looked for; empty where it was."""

    cell: str
    label: str
    axes: dict[str, Any]
    hardware: str
    machine: str | None
    rate_unit: str
    points: tuple[LinePoint, ...]
    changes: tuple[RateChange, ...]
    reason: str

    @property
    def software_changes(self) -> dict[int, tuple[str, ...]]:
        """The packages that changed, in words, by the number of the first point with the new version."""
        found = {at: software_between(self.points[at - 1], self.points[at]) for at in range(1, len(self.points))}
        return {at: words for at, words in found.items() if words}


class History(Frozen):
    """The lines of several sweeps. `order_reason` says why the points have this order.

    `family` is the number of places at which a change could stand; the intervals of all hold with `confidence`.
    `alone` are the labels of settings that have one point only.
    """

    sources: tuple[str, ...]
    order: Order
    order_reason: str
    confidence: float
    family: int
    lines: tuple[HistoryLine, ...]
    alone: tuple[str, ...]


def software_between(before: LinePoint, after: LinePoint) -> tuple[str, ...]:
    """Return a phrase for each package whose version differs: `torch 2.9.0 to 2.13.0`."""
    names = sorted(before.software.keys() | after.software.keys())
    pairs = ((name, before.software.get(name, "none"), after.software.get(name, "none")) for name in names)
    return tuple(f"{name} {old} to {new}" for name, old, new in pairs if old != new)


# The points of a history: the runs of one setting, on one machine, at one commit, in one sweep.


class LineKey(NamedTuple):
    """The common part of all points of a line: the setting, its version apart, and the machine."""

    cell: str
    hardware: HardwareKind
    machine: str | None
    rate_metric: str


@dataclass(frozen=True)
class Found:
    """A point with what the history needs beside it. `began` and `number` order points that share a sweep."""

    key: LineKey
    axes: Mapping[str, Any]
    rate_unit: str
    level: Level
    began: str
    number: int
    point: LinePoint


class _Place(NamedTuple):
    """The facts that split the runs of a setting in one sweep into points."""

    machine: str | None
    commit: str | None
    changed: bool | None


def points_of(part: Part, seen: set[str], committed: Mapping[str, str], confidence: float) -> Iterator[Found]:
    """Yield the points of a sweep. Records that are in `seen` were in another archive, and count once; it grows."""
    node_of = {block.name: block.resources.node for block in part.manifest.blocks}
    own = (row for row in in_order(part.runs) if row.record_sha256 not in seen)
    rows = [_on_node(row, node) if (node := node_of.get(row.block or "")) else row for row in own]
    seen |= {row.record_sha256 for row in rows if row.record_sha256 is not None}
    began = min((row.started_at for row in rows if row.started_at), default="")
    order = {version.name: number for number, version in enumerate(part.manifest.compared)}
    for one in group(part.manifest, rows):
        name = str(one.planned.axes.get(VERSION, ""))
        for place, runs in _apart(one).items():
            narrowed = replace(one, runs=tuple(runs))
            if (rate := own_rate(narrowed, confidence)) is None or not runs[0].started_at:
                continue
            measured = min(run.started_at for run in runs if run.started_at)
            yield Found(
                key=LineKey(_cell_without_version(narrowed), one.hardware, place.machine, one.rate_metric),
                axes=without_version(one.planned.axes),
                rate_unit=narrowed.rate_unit,
                level=Level.of(list(narrowed.log_rates.values())),
                began=began if order else measured,
                number=order.get(name, 0),
                point=LinePoint(
                    source=part.name,
                    version=name or None,
                    commit=place.commit,
                    local_changes=place.changed,
                    committed=committed.get(place.commit or ""),
                    measured=measured,
                    rate=rate,
                    disturbed=disturbance(narrowed),
                    software=dict(runs[-1].software),
                ),
            )


def _on_node(run: RunRow, node: str) -> RunRow:
    """Return a run of a fleet with its node as the machine. Its driver is software there, whose change a line shows."""
    facts = {fact: told for fact, told in run.hardware.facts if fact != "driver"}
    driver = {"driver": run.hardware.driver} if run.hardware.driver else {}
    return replace(
        run,
        hardware=HardwareKind.of(facts),
        software={**run.software, **driver},
        environment=run.surroundings.on(node),
    )


def commits_in(parts: Sequence[Part]) -> Collection[str]:
    """Return the commits at which the runs of these sweeps were measured."""
    places = (_place(run) for part in parts for run in part.runs if run.recorded)
    return {place.commit for place in places if place.commit is not None}


def refuse_without_rates(parts: Sequence[Part], found: Sequence[Found]) -> None:
    """Raise InputError where no run of these sweeps has a rate."""
    if not found:
        named = ", ".join(part.name for part in parts)
        raise InputError(f"no run in {named} has a rate, so there is no history: measure them first")


def _apart(one: CellRuns) -> dict[_Place, list[RunRow]]:
    places: dict[_Place, list[RunRow]] = {}
    for run in one.rated:
        places.setdefault(_place(run), []).append(run)
    return places


def _place(run: RunRow) -> _Place:
    """Return where a run belongs. A version's commit is that of its tree, not the one that is checked out."""
    commit, changed = run.checkout
    version = run.config.version if run.config is not None else None
    if version is not None and version.kind == "commit":
        commit, changed = version.digest, False
    return _Place(run.machine, commit, changed)


def _cell_without_version(one: CellRuns) -> str:
    """Return the name that a setting has in sweeps without versions."""
    if one.config is None or one.config.version is None:
        return one.cell
    return cell_name(without_version(one.config.raw))


def history_of(parts: Sequence[Part], committed: Mapping[str, str]) -> History:
    """Return the history of several sweeps, whose confidence is that of the last one.

    `committed` has the date of each commit that is known here. Raises InputError where no run has a rate, and where
    each setting has one point only.
    """
    confidence, seen = parts[-1].manifest.settings.analysis.confidence, set[str]()
    found = [point for part in parts for point in points_of(part, seen, committed, confidence)]
    refuse_without_rates(parts, found)
    order, reason = _order(found)
    lines: dict[LineKey, list[Found]] = {}
    for one in sorted(found, key=lambda one: _when(one, order)):
        lines.setdefault(one.key, []).append(one)
    names = names_of(key.hardware for key in lines)
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
        alone=tuple(_label(points[0]) for points in lines.values() if len(points) == 1),
    )


def _order(found: Sequence[Found]) -> tuple[Order, str]:
    unknown = sum(one.point.committed is None for one in found)
    if not unknown:
        return Order.commit_date, "the commit of every point is in this repository"
    many = f"{unknown} of {count_of(len(found), 'point')}"
    return Order.measurement_date, f"the date of the commit of {many} is not known here"


def _when(one: Found, order: Order) -> tuple[str, str, int, str]:
    first = (one.point.committed or "") if order is Order.commit_date else ""
    return first, one.began, one.number, one.point.measured


def _counted(points: Sequence[Found]) -> list[int]:
    """Return the numbers of the points that count for changes: disturbed ones do not."""
    return [number for number, one in enumerate(points) if one.point.disturbed is None]


def _places(points: Sequence[Found]) -> int:
    count = len(_counted(points))
    return count - 1 if count >= FEWEST_POINTS else 0


def _line(key: LineKey, points: Sequence[Found], names: Mapping[HardwareKind, str], family: Family) -> HistoryLine:
    counted = _counted(points)
    steps = level_steps([points[number].level for number in counted], family)
    few = f"{count_of(len(counted), 'undisturbed point')}, and a change needs {FEWEST_POINTS}"
    last = points[-1]
    return HistoryLine(
        cell=key.cell,
        label=_label(last),
        axes=dict(last.axes),
        hardware=names.get(key.hardware, "unknown hardware"),
        machine=key.machine,
        rate_unit=last.rate_unit,
        points=tuple(one.point for one in points),
        changes=tuple(_change(step, counted, points, family) for step in steps),
        reason=few if len(counted) < FEWEST_POINTS else "",
    )


def _change(step: LevelStep, counted: Sequence[int], points: Sequence[Found], family: Family) -> RateChange:
    before, after = points[counted[step.at - 1]].point, points[counted[step.at]].point
    return RateChange(
        at=counted[step.at],
        ratio=exponential_estimate(step.interval, "1", family),
        verdict=Verdict.faster if step.interval.center > 0 else Verdict.slower,
        software=software_between(before, after),
    )


def _label(one: Found) -> str:
    return label(one.axes)


def _why_no_line(lines: Mapping[LineKey, Sequence[Found]], names: Mapping[HardwareKind, str]) -> str:
    """Return why every setting has a single point: one sweep, other settings, or other machines."""
    machines = {(key.hardware, key.machine) for key in lines}
    settings = {key.cell for key in lines}
    told = f"{count_of(len(settings), 'setting')} with one point each, so there is no history"
    if len(machines) > 1 and len(settings) < len(lines):
        listed = ", ".join(sorted({names.get(key.hardware, "unknown hardware") for key in lines}))
        return f"{told}: the sweeps ran on {len(machines)} machines ({listed}), and machines are not mixed"
    return f"{told}: name more sweeps of the same settings, or measure this one again at another commit"
