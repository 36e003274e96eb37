"""Scaling over devices, by name: strong (one global batch is shared out) and weak (each device keeps its batch)."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy.optimize import brentq, least_squares

from accelsweep.analysis.baseline_comparison import Rules, disturbance, pair_of
from accelsweep.analysis.comparability import difference
from accelsweep.analysis.intervals import (
    FEWEST_PAIRS,
    Family,
    Interval,
    critical_t,
    exponential_estimate,
    linear_estimate,
    log_ratio,
    mean,
    significant,
    t_interval,
    variance,
)
from accelsweep.analysis.run_results import CellRuns, ranks, series, series_label
from accelsweep.analysis.simultaneous_intervals import intervals
from accelsweep.config.tasks import SIZES
from accelsweep.records.estimates import Estimate
from accelsweep.records.findings import BatchCurve, DeviceCount, LawForm, ScalingLaw, ScalingPoint
from accelsweep.records.run_environment import HardwareKind
from accelsweep.records.run_record import Outcome

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


# Throughput against batch size, with the knee (the rate stops to grow) and the frontier (memory ends).

NEAR_THE_BEST = 0.95
"""The knee is the smallest batch that reaches this part of the series' best rate."""


def batch_curves(groups: Sequence[CellRuns], hardware: Mapping[HardwareKind, str]) -> tuple[BatchCurve, ...]:
    """Return the curves of cells that differ in `batch_size` only; `hardware` names kinds of hardware by their JSON."""
    return tuple(_curve(members, hardware) for members in series(groups, ("batch_size",)))


def _curve(members: Sequence[CellRuns], hardware: Mapping[HardwareKind, str]) -> BatchCurve:
    curve = sorted(members, key=lambda group: group.batch_size)
    rates = {group.cell: mean(list(group.log_rates.values())) for group in curve if group.rated}
    exhausted = [group.batch_size for group in curve if any(run.outcome is Outcome.out_of_memory for run in group.runs)]
    return BatchCurve(
        series=series_label(curve[0].planned.axes, ("batch_size",)),
        hardware=hardware.get(curve[0].hardware),
        cells=tuple(group.cell for group in curve),
        knee=_knee(curve, rates),
        largest_measured=max((group.batch_size for group in curve if group.measured), default=None),
        smallest_out_of_memory=min(exhausted, default=None),
    )


def _knee(curve: Sequence[CellRuns], log_rates: Mapping[str, float]) -> str | None:
    if len(log_rates) < 2:
        return None
    enough = max(log_rates.values()) + math.log(NEAR_THE_BEST)
    return next(group.cell for group in curve if log_rates.get(group.cell, -math.inf) >= enough)


# The universal scalability law, fitted to log rates over numbers of devices, with intervals over blocks.

Array = npt.NDArray[np.float64]

Logs = Mapping[int, Mapping[str, float]]
"""For each number of devices, the logarithm of the rate in each block."""

FEWEST_COUNTS = 4
"""Numbers of devices that a fit needs: the law has three unknowns, and one more number can contradict it."""

HALF = 0.5
"""A further device pays while it adds at least this part of what one device does alone."""

_ZERO = 1e-9
"""A smaller number of the law is on its bound."""

_FAR = 1e6
"""No number of devices beyond this is told."""


@dataclass(frozen=True)
class Law:
    """A fitted law: its two numbers, the interval of each (not cut off), and the largest misfit as a relative share."""

    contention: float
    coherency: float
    intervals: tuple[Interval, Interval]
    misfit: float

    def capacity(self, devices: int) -> float:
        """Return the rate of so many devices over that of one: C(n)."""
        return devices / float(_divisor(devices, np.array([self.contention, self.coherency])))


def fit_law(logs: Logs, family: Family) -> Law:
    """Return the law that fits the rates best. `family` is one over both numbers of all fitted laws.

    `logs` has `FEWEST_COUNTS` numbers of devices at least, each with a value at least. Only blocks that hold every
    number count where there are three of them.
    """
    counts = np.array(sorted(logs), dtype=np.float64)
    shared = sorted(set.intersection(*(set(one) for one in logs.values())))
    paired = len(shared) >= FEWEST_PAIRS
    rows = [[logs[int(n)][block] for block in shared] if paired else list(logs[int(n)].values()) for n in counts]
    means = np.array([mean(row) for row in rows])
    found = least_squares(
        lambda at: _centred(means - np.log(counts) + np.log(_divisor(counts, at))),
        (0.05, 0.001),
        jac=lambda at: _slopes(counts, at),
        bounds=((0.0, 0.0), (1.0, np.inf)),
        x_scale=(1.0 / counts[-1], 1.0 / counts[-1] ** 2),
        xtol=1e-10,
        ftol=1e-12,
        gtol=1e-12,
    )
    at = np.where(found.x < _ZERO, 0.0, found.x)  # bounds are approached from within
    pulls = -np.linalg.pinv(_slopes(counts, at))  # of the log rate at each number of devices on s and on k
    left = [[value - math.log(n / _divisor(n, at)) for value in row] for n, row in zip(counts, rows, strict=True)]
    interval = _paired if paired else _unpaired
    intervals = [interval(left, pull, float(one), family) for pull, one in zip(pulls, at, strict=True)]
    return Law(float(at[0]), float(at[1]), (intervals[0], intervals[1]), float(np.expm1(np.abs(found.fun).max())))


def _divisor(n: Array | float, at: Array) -> Array:
    return np.asarray(1.0 + at[0] * (n - 1.0) + at[1] * n * (n - 1.0))


def _slopes(counts: Array, at: Array) -> Array:
    """Return how the centred residuals move with s and k, (counts, 2)."""
    own = np.stack([counts - 1.0, counts * (counts - 1.0)], axis=1) / _divisor(counts, at)[:, np.newaxis]
    return np.asarray(own - own.mean(axis=0))


def _centred(values: Array) -> Array:
    """Return the values less their mean: the rate of one device is whatever fits best."""
    return np.asarray(values - values.mean())


def _paired(left: Sequence[Sequence[float]], pull: Array, at: float, family: Family) -> Interval:
    """Return the interval of one number of the law from what is left of each block's rates."""
    return t_interval([at + math.fsum(pull * block) for block in zip(*left, strict=True)], family)


def _unpaired(left: Sequence[Sequence[float]], pull: Array, at: float, family: Family) -> Interval:
    """Return that interval where no blocks are shared, with Welch's and Satterthwaite's degrees of freedom."""
    center = at + math.fsum(p * mean(row) for p, row in zip(pull, left, strict=True))
    count = min(map(len, left))
    if count < 2:
        return Interval(center, None, count, "one repeat shows no spread; an interval needs at least 2 of each number")
    parts = [(p**2 * variance(row) / len(row), len(row) - 1) for p, row in zip(pull, left, strict=True)]
    squared = math.fsum(part for part, _ in parts)
    if squared == 0.0:
        return Interval(center, None, count, "all values are identical, so their spread is unknown")
    degrees = squared**2 / math.fsum(part**2 / free for part, free in parts)
    return Interval(center, critical_t(degrees, family.confidence, family.size) * math.sqrt(squared), count)


def most_devices(contention: float, coherency: float, worth: float) -> int | None:
    """Return the number of devices of which the last one still adds `worth` of what one does alone: C(n) - C(n - 1).

    A `worth` of 0 gives the peak, beyond which the rate falls: the largest n with n (n - 1) <= (1 - s) / k. None is no
    end, or one beyond a million. Up to the peak C' = (1 - s - k n^2) / (1 + s (n - 1) + k n (n - 1))^2 falls with each
    of n, s and k, so that more contention or coherency never leaves more devices.
    """
    at = np.array([contention, coherency])

    def added(n: float) -> float:
        return n / float(_divisor(n, at)) - ((n - 1) / float(_divisor(n - 1, at)) if n > 1 else 0.0) - worth

    if added(_FAR) >= 0:
        return None
    return math.floor(float(brentq(added, 1.0, _FAR)) + _ZERO)


# The universal scalability law of each scaling series, and the number of devices where a further one stops to pay.


def scaling_laws(curves: Sequence[ScalingCurve], rules: Rules) -> tuple[ScalingLaw, ...]:
    """Return the law of each curve that was measured on four numbers of devices, and on which each rank adds cores.

    The intervals of both numbers of all laws hold together. A cell that may not be compared with the curve's fewest
    devices is left out. Where several cells have one number of devices, the first counts.
    """
    measured = [(curve, _law_members(curve, rules)) for curve in curves if not curve.adds_nothing]
    asked = [(curve, members) for curve, members in measured if len(members) >= FEWEST_COUNTS]
    family = Family(2 * len(asked), rules.family.confidence)
    return tuple(_law(curve, members, family) for curve, members in asked)


def _law_members(curve: ScalingCurve, rules: Rules) -> dict[int, CellRuns]:
    found: dict[int, CellRuns] = {}
    for group in curve.comparable(rules.across):
        found.setdefault(ranks(group) or 0, group)
    return found


def _law(curve: ScalingCurve, members: dict[int, CellRuns], family: Family) -> ScalingLaw:
    logs: Logs = {count: group.log_rates for count, group in members.items()}
    law = fit_law(logs, family)
    form, reason = _form(members, law.intervals)
    contention = _cut(law.contention, law.intervals[0], family, 1.0)
    coherency = _cut(law.coherency, law.intervals[1], family, math.inf)
    told = form in (LawForm.ideal, LawForm.amdahl, LawForm.universal)
    return ScalingLaw(
        series=curve.series,
        kind=curve.kind,
        devices=tuple(members),
        form=form,
        contention=contention,
        coherency=coherency,
        misfit=significant(law.misfit, 2),
        speedups=tuple(significant(law.capacity(count) / law.capacity(min(members))) for count in members),
        pays=_reach(contention, coherency, HALF) if told else None,
        peak=_reach(contention, coherency, 0.0) if told else None,
        reason=reason,
    )


def _form(members: dict[int, CellRuns], intervals: Sequence[Interval]) -> tuple[LawForm, str]:
    """Return what the intervals support, and why nothing if they do not."""
    for count, group in members.items():
        if (found := disturbance(group)) is not None:
            return LawForm.disturbed, f"the runs on {count} were disturbed: {found}"
    lows, highs = [one.low for one in intervals], [one.high for one in intervals]
    if None in (*lows, *highs):
        return LawForm.undecided, next(one.reason or "" for one in intervals if one.half_width is None)
    if any(high is not None and high < 0 for high in highs):
        return LawForm.beyond, "the rate grows faster than the number of devices, and the law has no room for that"
    contended, coherent = (low is not None and low > 0 for low in lows)
    return LawForm.universal if coherent else LawForm.amdahl if contended else LawForm.ideal, ""


def _cut(value: float, interval: Interval, family: Family, most: float) -> Estimate:
    """Return a number of the law as a finding: the bounded fit, and the interval cut off at its bounds.

    With few blocks the bounded fit may lie a little outside of the interval of the one without bounds. It is then
    widened to hold both.
    """
    found = linear_estimate(interval, "1", family)
    if found.low is None or found.high is None:
        return found.model_copy(update={"value": significant(value)})
    low, high = (min(max(0.0, end), most) for end in (min(found.low, value), max(found.high, value)))
    return found.model_copy(update={"value": significant(value), "low": significant(low), "high": significant(high)})


def _reach(contention: Estimate, coherency: Estimate, worth: float) -> DeviceCount:
    """Return how many devices add so much. More contention or coherency leaves fewer, so the ends are theirs."""
    assert None not in (contention.low, contention.high, coherency.low, coherency.high), "told with intervals only"
    return DeviceCount(
        value=most_devices(contention.value, coherency.value, worth),
        low=most_devices(contention.high or 0.0, coherency.high or 0.0, worth),
        high=most_devices(contention.low or 0.0, coherency.low or 0.0, worth),
    )
