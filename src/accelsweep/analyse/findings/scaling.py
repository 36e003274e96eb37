"""Scaling over devices, by name: strong (one global batch is shared out) and weak (each device keeps its batch)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from accelsweep.analyse.findings.against_baseline import Rules, pair_of
from accelsweep.analyse.findings.series import ranks, series, series_label
from accelsweep.analyse.likeness import difference
from accelsweep.analyse.runs import CellRuns
from accelsweep.analyse.statistics.intervals import Family, Interval, exponential_estimate, log_ratio
from accelsweep.analyse.statistics.pools import intervals
from accelsweep.core.findings import ScalingPoint
from accelsweep.core.tasks import SIZES

_FREE = ("devices", "num_nodes", "batch_size")


def scaling(groups: Sequence[CellRuns], rules: Rules) -> tuple[ScalingPoint, ...]:
    """Return each measured cell of each scaling series against the series' cell on the fewest devices.

    Efficiency is the speed-up divided by the ratio of devices (strong: Amdahl 1967; weak: Gustafson 1988). Where more
    ranks share the cores of one processor no device was added, and there is no efficiency.
    The intervals of all points hold together; a point that may not be compared with its base is left out.
    """
    curves = [("strong", curve) for curve in _curves(groups, strong=True)]
    curves += [("weak", curve) for curve in _curves(groups, strong=False)]
    family = Family(sum(len(curve) - 1 for _, curve in curves), rules.family.confidence)
    asked = [
        _Asked(kind, group, curve[0], _cuts_one_machine(curve))
        for kind, curve in curves
        for group in curve
        if difference(group, curve[0], _FREE, rules.across) is None
    ]
    others = [one for one in asked if one.group is not one.base]
    pairs = [pair_of(one.group, one.base, one.group.log_rates, one.base.log_rates) for one in others]
    found = iter(intervals(pairs, family, log_ratio))
    return tuple(_point(one, next(found) if one.group is not one.base else _itself(one), family) for one in asked)


@dataclass(frozen=True)
class _Asked:
    """A point of a curve, and the curve's cell on the fewest devices, which it is compared with."""

    kind: str
    group: CellRuns
    base: CellRuns
    cut: bool


def _curves(groups: Sequence[CellRuns], *, strong: bool) -> list[list[CellRuns]]:
    batch = global_batch if strong else _batch
    measured = [group for group in groups if group.rated and ranks(group) and batch(group) and is_rate(group)]
    found = series(measured, _FREE, batch)
    curves = [sorted(members, key=lambda group: (ranks(group) or 0, group.cell)) for members in found]
    return [curve for curve in curves if ranks(curve[0]) != ranks(curve[-1])]


def is_rate(group: CellRuns) -> bool:
    """Return whether cells are compared by a rate: the largest batch of each rank has no efficiency."""
    return group.rate_metric not in SIZES


def global_batch(group: CellRuns) -> int | None:
    """Return the samples of one optimiser step over all devices and accumulated steps, as in a run of the cell."""
    return group.effective.global_batch_size if group.effective else None


def _batch(group: CellRuns) -> int:
    return 0 if group.config is None else group.config.batch_size


def _itself(one: _Asked) -> Interval:
    return Interval(
        0.0, None, len(one.base.log_rates), "the series' fewest devices, which the others are compared with"
    )


def _point(one: _Asked, interval: Interval, family: Family) -> ScalingPoint:
    group = one.group
    factor = (ranks(group) or 1) / (ranks(one.base) or 1)
    batch = f"global batch {global_batch(group)}" if one.kind == "strong" else f"batch {_batch(group)} per device"
    return ScalingPoint(
        series=series_label(group.planned.axes, _FREE, batch),
        kind=one.kind,
        cell=group.cell,
        devices=ranks(group) or 0,
        speedup=exponential_estimate(interval, "1", family),
        efficiency=None if one.cut else exponential_estimate(interval, "1", family, 1.0 / factor),
    )


def _cuts_one_machine(curve: Sequence[CellRuns]) -> bool:
    """Say whether the ranks of a curve share the cores of as many processors, rather than have a device each."""
    configs = [group.config for group in curve if group.config is not None]
    return all(config.accelerator == "cpu" for config in configs) and len({config.devices for config in configs}) > 1
