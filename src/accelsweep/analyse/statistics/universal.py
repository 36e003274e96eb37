"""The universal scalability law, fitted to log rates over numbers of devices, with intervals over blocks.

On n devices the rate is the rate of one, times C(n) = n / (1 + s (n - 1) + k n (n - 1)). The contention s is the share
of the work that cannot be divided. The coherency k is what each pair of devices costs, such as an exchange of
gradients. Amdahl's law is the case k = 0, ideal scaling is s = k = 0. Sources: N. Gunther, "A Simple Capacity Model of
Massively Parallel Transaction Systems" (CMG 1993) and "Guerrilla Capacity Planning" (2007), chapters 4 to 6.

The fit is by least squares on the log scale, with s from 0 to 1 and k from 0 on. The interval is that of the
infinitesimal jackknife (L. Jaeckel 1972; B. Efron 1982): each block has its own pull on the fit, and Student's t is
taken over the pulls. Without blocks that hold all numbers of devices, Welch's interval is taken over these numbers.
Intervals are those of a fit without bounds, one step from the bounded one, and are cut off at the bounds afterwards.
So they hold the truth as often as they say where it lies on a bound, too.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy.optimize import brentq, least_squares

from accelsweep.analyse.statistics.intervals import FEWEST_PAIRS, Family, Interval, mean, t_interval, variance
from accelsweep.repeats.student import critical_t

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
