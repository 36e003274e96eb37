"""Analyses scaling across devices and batch sizes.

Scaling across devices is strong (constant global batch size) or weak (constant batch size per device). Each point on a
scaling curve is compared with the point with the fewest devices. Gunther's universal scalability law is fitted to
curves with at least four device counts; the intervals for its parameters use the block as the statistical unit.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import scipy

from accelsweep.analysis.baseline_comparison import Rules, disturbance, make_pair
from accelsweep.analysis.comparability import incompatibility
from accelsweep.analysis.intervals import (
    MIN_PAIRS,
    Family,
    Interval,
    critical_t,
    exponential_estimate,
    linear_estimate,
    log_ratio,
    mean,
    round_significant,
    t_interval,
    variance,
)
from accelsweep.analysis.run_results import SettingRuns, setting_series
from accelsweep.analysis.simultaneous_intervals import simultaneous_intervals
from accelsweep.config.setting import series_label
from accelsweep.records.estimates import Estimate
from accelsweep.records.findings import BatchCurve, DeviceCount, LawForm, ScalingLaw, ScalingPoint
from accelsweep.results import Outcome
from accelsweep.run_environment import HardwareKind
from accelsweep.tasks import SIZE_METRICS

_FREE = ("devices", "num_nodes", "batch_size")

KNEE_SHARE = 0.95
"""The knee is the smallest batch size that reaches this share of the series' best rate."""

MIN_DEVICE_COUNTS = 4
"""The number of device counts required for a fit: with three unknowns, only a fourth point can contradict the law."""

MIN_MARGINAL_GAIN = 0.5
"""An additional device is worthwhile if it adds at least this share of a single device's rate."""

_ZERO = 1e-9
"""A fitted parameter below this is treated as zero, its lower bound."""

_MAX_DEVICES = 1e6
"""Device counts above this are reported as unlimited."""

Array = npt.NDArray[np.float64]

Logs = Mapping[int, Mapping[str, float]]
"""Maps each device count to the logarithm of the rate in each block."""


@dataclass(frozen=True)
class ScalingCurve:
    """Settings that do the same work on different numbers of devices, fewest first; `kind` is `strong` or `weak`."""

    kind: str
    members: tuple[SettingRuns, ...]

    @property
    def base(self) -> SettingRuns:
        """The setting on the fewest devices, with which the other settings are compared."""
        return self.members[0]

    def label(self, group: SettingRuns) -> str:
        """Return a label with the setting's axes that do not vary along the curve and the batch size held constant."""
        strong = self.kind == "strong"
        batch = f"global batch {_global_batch(group)}" if strong else f"batch {group.batch_size} per device"
        return series_label(group.planned.axes, _FREE, batch)

    @property
    def shares_cores(self) -> bool:
        """Whether the ranks share the cores of one CPU, so that additional ranks add no cores.

        If the number of threads per rank is fixed, each rank adds its own cores instead.
        """
        configs = [group.config for group in self.members if group.config is not None]
        shared = all(config.accelerator == "cpu" and config.fixed_threads is None for config in configs)
        return shared and len({config.devices for config in configs}) > 1

    def comparable(self, across: Collection[str]) -> list[SettingRuns]:
        """Return the settings that may be compared with the base, including the base itself."""
        return [group for group in self.members if incompatibility(group, self.base, _FREE, across) is None]


def scaling_curves(groups: Sequence[SettingRuns]) -> list[ScalingCurve]:
    """Return the strong-scaling curves, followed by the weak-scaling curves.

    There are no curves for size metrics such as the largest batch size.
    """
    curves = []
    for kind, batch in (("strong", _global_batch), ("weak", lambda group: group.batch_size)):
        measured = [one for one in groups if one.rated and one.world_size and batch(one)]
        rates = [group for group in measured if group.rate_metric not in SIZE_METRICS]
        for members in setting_series(rates, _FREE, batch):
            curve = sorted(members, key=lambda group: (group.world_size or 0, group.setting))
            if curve[0].world_size != curve[-1].world_size:
                curves.append(ScalingCurve(kind, tuple(curve)))
    return curves


def _global_batch(group: SettingRuns) -> int | None:
    """Return the number of samples per optimiser step over all devices and accumulated steps."""
    return group.effective.global_batch_size if group.effective else None


def scaling(curves: Sequence[ScalingCurve], rules: Rules) -> tuple[ScalingPoint, ...]:
    """Compare each setting on each curve with the curve's setting on the fewest devices.

    Efficiency is the speed-up divided by the ratio of device counts (strong: Amdahl 1967; weak: Gustafson 1988). It is
    undefined for ranks that share the cores of one CPU. The intervals of all points hold simultaneously; a point that
    may not be compared with its base is left out.
    """
    family = Family(sum(len(curve.members) - 1 for curve in curves), rules.family.confidence)
    points = [(curve, group) for curve in curves for group in curve.comparable(rules.across)]
    pairs = [
        make_pair(group, curve.base, group.log_rates, curve.base.log_rates)
        for curve, group in points
        if group is not curve.base
    ]
    intervals = iter(simultaneous_intervals(pairs, family, log_ratio))
    result = []
    for curve, group in points:
        if group is curve.base:
            reason = "the smallest device count in the series, the reference for all others"
            interval = Interval(0.0, None, len(group.log_rates), reason)
        else:
            interval = next(intervals)
        factor = (group.world_size or 1) / (curve.base.world_size or 1)
        result.append(
            ScalingPoint(
                series=curve.label(group),
                kind=curve.kind,
                setting=group.setting,
                devices=group.world_size or 0,
                speedup=exponential_estimate(interval, "1", family),
                efficiency=None if curve.shares_cores else exponential_estimate(interval, "1", family, 1.0 / factor),
            )
        )
    return tuple(result)


def batch_curves(groups: Sequence[SettingRuns], hardware: Mapping[HardwareKind, str]) -> tuple[BatchCurve, ...]:
    """Return the curves of settings that differ only in `batch_size`; `hardware` maps each kind to its name."""
    return tuple(_batch_curve(members, hardware) for members in setting_series(groups, ("batch_size",)))


def _batch_curve(members: Sequence[SettingRuns], hardware: Mapping[HardwareKind, str]) -> BatchCurve:
    curve = sorted(members, key=lambda group: group.batch_size)
    rates = {group.setting: mean(list(group.log_rates.values())) for group in curve if group.rated}
    exhausted = [group.batch_size for group in curve if any(run.outcome is Outcome.out_of_memory for run in group.runs)]
    knee = None
    if len(rates) > 1:
        enough = max(rates.values()) + math.log(KNEE_SHARE)
        knee = next(group.setting for group in curve if rates.get(group.setting, -math.inf) >= enough)
    return BatchCurve(
        series=series_label(curve[0].planned.axes, ("batch_size",)),
        hardware=hardware.get(curve[0].hardware),
        settings=tuple(group.setting for group in curve),
        knee=knee,
        largest_measured=max((group.batch_size for group in curve if group.measured), default=None),
        smallest_out_of_memory=min(exhausted, default=None),
    )


# The universal scalability law: C(n) = n / (1 + s (n - 1) + k n (n - 1)), with contention s and coherency k.


@dataclass(frozen=True)
class Law:
    """A fitted law: its two parameters, their unclipped intervals, and the largest relative residual."""

    contention: float
    coherency: float
    intervals: tuple[Interval, Interval]
    misfit: float

    def capacity(self, devices: int) -> float:
        """Return C(n), the rate of n devices divided by the rate of one."""
        return devices / float(_divisor(devices, np.array([self.contention, self.coherency])))


def fit_law(logs: Logs, family: Family) -> Law:
    """Fit the law to log rates by least squares. `family` spans both parameters of all fitted laws.

    `logs` must contain at least `MIN_DEVICE_COUNTS` device counts, each with at least one value. If three or more
    blocks contain every device count, only those blocks are used.
    """
    counts = np.array(sorted(logs), dtype=np.float64)
    shared = sorted(set.intersection(*(set(blocks) for blocks in logs.values())))
    paired = len(shared) >= MIN_PAIRS
    rows = [[logs[int(n)][block] for block in shared] if paired else list(logs[int(n)].values()) for n in counts]
    means = np.array([mean(row) for row in rows])

    def residuals(at: Array) -> Array:  # centred, because the rate of one device is a third, unconstrained parameter
        values = means - np.log(counts) + np.log(_divisor(counts, at))
        return np.asarray(values - values.mean())

    fit = scipy.optimize.least_squares(
        residuals,
        (0.05, 0.001),
        jac=lambda at: _jacobian(counts, at),
        bounds=((0.0, 0.0), (1.0, np.inf)),
        x_scale=(1.0 / counts[-1], 1.0 / counts[-1] ** 2),
        xtol=1e-10,
        ftol=1e-12,
        gtol=1e-12,
    )
    at = np.where(fit.x < _ZERO, 0.0, fit.x)  # the optimiser approaches bounds from within
    weights = -np.linalg.pinv(_jacobian(counts, at))  # effect of each device count's log rate on s and k
    rest = [[value - math.log(n / _divisor(n, at)) for value in row] for n, row in zip(counts, rows, strict=True)]
    interval = _paired_interval if paired else _unpaired_interval
    intervals = [interval(rest, weight, float(value), family) for weight, value in zip(weights, at, strict=True)]
    return Law(float(at[0]), float(at[1]), (intervals[0], intervals[1]), float(np.expm1(np.abs(fit.fun).max())))


def _divisor(n: Array | float, at: Array) -> Array:
    return np.asarray(1.0 + at[0] * (n - 1.0) + at[1] * n * (n - 1.0))


def _jacobian(counts: Array, at: Array) -> Array:
    """Return the derivatives of the centred residuals with respect to s and k, with shape (counts, 2)."""
    slopes = np.stack([counts - 1.0, counts * (counts - 1.0)], axis=1) / _divisor(counts, at)[:, np.newaxis]
    return np.asarray(slopes - slopes.mean(axis=0))


def _paired_interval(rest: Sequence[Sequence[float]], weight: Array, at: float, family: Family) -> Interval:
    """Return the interval for a parameter, based on the residuals of each block."""
    return t_interval([at + math.fsum(weight * block) for block in zip(*rest, strict=True)], family)


def _unpaired_interval(rest: Sequence[Sequence[float]], weight: Array, at: float, family: Family) -> Interval:
    """Return the interval for a parameter without common blocks, using Welch-Satterthwaite degrees of freedom."""
    center = at + math.fsum(w * mean(row) for w, row in zip(weight, rest, strict=True))
    count = min(map(len, rest))
    if count < 2:
        return Interval(
            center, None, count, "a single repeat has no spread; an interval requires at least 2 per device count"
        )
    parts = [(w**2 * variance(row) / len(row), len(row) - 1) for w, row in zip(weight, rest, strict=True)]
    squared = math.fsum(part for part, _ in parts)
    if squared == 0.0:
        return Interval(center, None, count, "all values are identical, so their spread is unknown")
    degrees = squared**2 / math.fsum(part**2 / free for part, free in parts)
    return Interval(center, critical_t(degrees, family.confidence, family.size) * math.sqrt(squared), count)


def most_devices(contention: float, coherency: float, worth: float) -> int | None:
    """Return the largest number of devices, n, of which the last adds at least `worth` times a single device's rate.

    That is, C(n) - C(n - 1) >= worth. If `worth` is 0, this is the peak, beyond which the rate falls: the largest n
    with n (n - 1) <= (1 - s) / k. None means that there is no limit or that it exceeds a million. Up to the peak, the
    derivative C' = (1 - s - k n^2) / (1 + s (n - 1) + k n (n - 1))^2 falls as n, s or k grows, so more contention or
    coherency never results in more devices.
    """
    at = np.array([contention, coherency])

    def added(n: float) -> float:
        return n / float(_divisor(n, at)) - ((n - 1) / float(_divisor(n - 1, at)) if n > 1 else 0.0) - worth

    if added(_MAX_DEVICES) >= 0:
        return None
    return math.floor(float(scipy.optimize.brentq(added, 1.0, _MAX_DEVICES)) + _ZERO)


def scaling_laws(curves: Sequence[ScalingCurve], rules: Rules) -> tuple[ScalingLaw, ...]:
    """Fit the law to each curve that has enough device counts, except where the ranks share the cores of one CPU.

    The intervals of both parameters of all laws hold simultaneously. A setting that may not be compared with the
    setting on the fewest devices is left out. If several settings have the same device count, the first is used.
    """
    fitted = []
    for curve in (curve for curve in curves if not curve.shares_cores):
        members: dict[int, SettingRuns] = {}
        for group in curve.comparable(rules.across):
            members.setdefault(group.world_size or 0, group)
        if len(members) >= MIN_DEVICE_COUNTS:
            fitted.append((curve, members))
    family = Family(2 * len(fitted), rules.family.confidence)
    return tuple(_scaling_law(curve, members, family) for curve, members in fitted)


def _scaling_law(curve: ScalingCurve, members: dict[int, SettingRuns], family: Family) -> ScalingLaw:
    law = fit_law({count: group.log_rates for count, group in members.items()}, family)
    form, reason = _form(members, law.intervals)
    contention = _clip(law.contention, law.intervals[0], family, 1.0)
    coherency = _clip(law.coherency, law.intervals[1], family, math.inf)
    conclusive = form in (LawForm.ideal, LawForm.amdahl, LawForm.universal)
    return ScalingLaw(
        series=curve.label(curve.base),
        kind=curve.kind,
        devices=tuple(members),
        form=form,
        contention=contention,
        coherency=coherency,
        misfit=round_significant(law.misfit, 2),
        speedups=tuple(round_significant(law.capacity(count) / law.capacity(min(members))) for count in members),
        pays=_device_count(contention, coherency, MIN_MARGINAL_GAIN) if conclusive else None,
        peak=_device_count(contention, coherency, 0.0) if conclusive else None,
        reason=reason,
    )


def _form(members: dict[int, SettingRuns], intervals: Sequence[Interval]) -> tuple[LawForm, str]:
    """Return the form of the law that the intervals support, together with the reason if they support none."""
    for count, group in members.items():
        if (disturbed := disturbance(group)) is not None:
            return LawForm.disturbed, f"the runs at device count {count} were disturbed: {disturbed}"
    lows, highs = [interval.low for interval in intervals], [interval.high for interval in intervals]
    if None in (*lows, *highs):
        return LawForm.undecided, next(one.reason or "" for one in intervals if one.half_width is None)
    if any(high is not None and high < 0 for high in highs):
        return LawForm.beyond, "the rate grows faster than the number of devices, which the law cannot represent"
    contention, coherency = (low is not None and low > 0 for low in lows)
    return LawForm.universal if coherency else LawForm.amdahl if contention else LawForm.ideal, ""


def _clip(value: float, interval: Interval, family: Family, most: float) -> Estimate:
    """Convert a parameter to an estimate: the bounded fit, with the interval clipped to the parameter's bounds.

    With few blocks, the bounded fit may fall slightly outside the interval, which belongs to the unbounded fit. The
    interval is then widened to contain both.
    """
    estimate = linear_estimate(interval, "1", family)
    ends: dict[str, float] = {}
    if estimate.low is not None and estimate.high is not None:
        ends = {"low": min(estimate.low, value), "high": max(estimate.high, value)}
        ends = {name: round_significant(min(max(0.0, end), most)) for name, end in ends.items()}
    return estimate.model_copy(update={"value": round_significant(value), **ends})


def _device_count(contention: Estimate, coherency: Estimate, worth: float) -> DeviceCount:
    """Return `most_devices` with its interval; more contention or coherency results in fewer devices."""
    assert None not in (contention.low, contention.high, coherency.low, coherency.high), (
        "a conclusive form has finite intervals"
    )
    return DeviceCount(
        value=most_devices(contention.value, coherency.value, worth),
        low=most_devices(contention.high or 0.0, coherency.high or 0.0, worth),
        high=most_devices(contention.low or 0.0, coherency.low or 0.0, worth),
    )
