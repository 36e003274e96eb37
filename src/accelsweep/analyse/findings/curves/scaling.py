"""Scaling over devices, by name: strong (one global batch is shared out) and weak (each device keeps its batch)."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass

from accelsweep.analyse.collected.runs import CellRuns
from accelsweep.analyse.findings.against_baseline import Rules, pair_of
from accelsweep.analyse.findings.curves.series import ranks, series, series_label
from accelsweep.analyse.findings.likeness import difference
from accelsweep.analyse.statistics.intervals import Family, Interval, exponential_estimate, log_ratio
from accelsweep.analyse.statistics.pools import intervals
from accelsweep.core.cells.tasks import SIZES
from accelsweep.core.findings.series import ScalingPoint

_FREE = ("devices", "num_nodes", "batch_size")


def scaling(curves: Sequence[ScalingCurve], rules: Rules) -> tuple[ScalingPoint, ...]:
    """Return each measured cell of each scaling series against the series' cell on the fewest devices.

    Efficiency is the speed-up divided by the ratio of devices (strong: Amdahl 1967; weak: Gustafson 1988). Where more
    ranks share the cores of one processor no device was added, and there is no efficiency.
    The intervals of all points hold together; a point that may not be compared with its base is left out.
    """
    family = Family(sum(len(curve.members) - 1 for curve in curves), rules.family.confidence)
    asked = [_Asked(curve, group) for curve in curves for group in curve.comparable(rules.across)]
    others = [one for one in asked if one.group is not one.curve.base]
    pairs = [pair_of(one.group, one.curve.base, one.group.log_rates, one.curve.base.log_rates) for one in others]
    found = iter(intervals(pairs, family, log_ratio))
    return tuple(_point(one, next(found) if one.group is not one.curve.base else _itself(one), family) for one in asked)


@dataclass(frozen=True)
class ScalingCurve:
    """Cells of one work on several numbers of devices, the fewest first; `kind` is `strong` or `weak`."""

    kind: str
    members: tuple[CellRuns, ...]

    @property
    def base(self) -> CellRuns:
        """The cell on the fewest devices, which the others are compared with."""
        return self.members[0]

    @property
    def series(self) -> str:
        """The curve in words: the axes that do not vary in it, and what stays the same for each device or in all."""
        return self.series_of(self.base)

    def series_of(self, group: CellRuns) -> str:
        """Return the curve in the words of one of its cells."""
        strong = self.kind == "strong"
        batch = f"global batch {global_batch(group)}" if strong else f"batch {group.batch_size} per device"
        return series_label(group.planned.axes, _FREE, batch)

    @property
    def adds_nothing(self) -> bool:
        """Whether the ranks share the cores of as many processors, rather than have a device each.

        Ranks with a fixed number of threads do not: each of them brings its cores.
        """
        configs = [group.config for group in self.members if group.config is not None]
        shared = all(config.accelerator == "cpu" and config.threads is None for config in configs)
        return shared and len({config.devices for config in configs}) > 1

    def comparable(self, across: Collection[str]) -> list[CellRuns]:
        """Return the cells that may be compared with the base, which is one of them."""
        return [group for group in self.members if difference(group, self.base, _FREE, across) is None]


def scaling_curves(groups: Sequence[CellRuns]) -> list[ScalingCurve]:
    """Return the curves of strong scaling, then those of weak scaling."""
    return [
        ScalingCurve(kind, curve)
        for kind, batch in (("strong", global_batch), ("weak", lambda group: group.batch_size))
        for curve in _members(groups, batch)
    ]


def _members(groups: Sequence[CellRuns], batch: Callable[[CellRuns], int | None]) -> Iterator[tuple[CellRuns, ...]]:
    measured = [group for group in groups if group.rated and ranks(group) and batch(group) and is_rate(group)]
    for members in series(measured, _FREE, batch):
        curve = sorted(members, key=lambda group: (ranks(group) or 0, group.cell))
        if ranks(curve[0]) != ranks(curve[-1]):
            yield tuple(curve)


@dataclass(frozen=True)
class _Asked:
    """A point of a curve."""

    curve: ScalingCurve
    group: CellRuns


def is_rate(group: CellRuns) -> bool:
    """Return whether cells are compared by a rate: the largest batch of each rank has no efficiency."""
    return group.rate_metric not in SIZES


def global_batch(group: CellRuns) -> int | None:
    """Return the samples of one optimiser step over all devices and accumulated steps, as in a run of the cell."""
    return group.effective.global_batch_size if group.effective else None


def _itself(one: _Asked) -> Interval:
    count = len(one.curve.base.log_rates)
    return Interval(0.0, None, count, "the series' fewest devices, which the others are compared with")


def _point(one: _Asked, interval: Interval, family: Family) -> ScalingPoint:
    group, curve = one.group, one.curve
    factor = (ranks(group) or 1) / (ranks(curve.base) or 1)
    return ScalingPoint(
        series=curve.series_of(group),
        kind=curve.kind,
        cell=group.cell,
        devices=ranks(group) or 0,
        speedup=exponential_estimate(interval, "1", family),
        efficiency=None if curve.adds_nothing else exponential_estimate(interval, "1", family, 1.0 / factor),
    )
