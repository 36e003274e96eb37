"""Computes simultaneous intervals for many paired differences, and repeated (sequential) intervals.

Three blocks reveal little about one setting's noise, but the other settings show how much noise is typical, so each
variance is moderated, i.e. shrunk towards the variances in its pool. The settings share a baseline, which makes their
variances look more alike than they are, so the prior's degrees of freedom are capped. No half-width is smaller than
that of the setting's own plain interval.

Source: G. Smyth, "Linear models and empirical Bayes methods for assessing differential expression in microarray
experiments", Statistical Applications in Genetics and Molecular Biology 3 (2004). The cap and the floor are our
additions.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy

from accelsweep.analysis.intervals import (
    Family,
    Interval,
    Key,
    is_paired,
    mean,
    paired_interval,
    prior_degrees,
    variance,
    welch_interval,
)
from accelsweep.config.sweep_options import LOOKS

Array = npt.NDArray[np.float64]

BlockValues = Mapping[Any, float]
"""One side of a pair: values (log rates or qualities) keyed by the unit of pairing (block or seed)."""

_GRID_POINTS = 801
"""The number of grid points for integrating the density between two bounds."""


@dataclass(frozen=True)
class Moderated:
    """The noise in a pool of pairs; shapes are (..., pairs), or (...) for the two prior values.

    `variance` is that of one paired difference, in squared units of the differences, with `degrees` degrees of freedom.
    `prior` is the pool's typical variance, weighted with `prior_degrees` degrees of freedom.
    """

    variance: Array
    degrees: Array
    prior: Array
    prior_degrees: Array


def moderate(variances: Array, degrees: Array, settings: int) -> Moderated:
    """Shrink positive sample variances of shape (..., pairs), with pairs >= 2, towards their common prior.

    Any leading dimensions are simulated sweeps. `degrees` are the variances' degrees of freedom, of shape (pairs,) or
    (..., pairs); `settings` is the number of settings in the pool, including the baseline. Smyth 2004, section 6.2:
    once the contribution of chance alone is removed, the mean of the log variances determines the prior variance, and
    their spread determines the prior's degrees of freedom (capped at `analysis.intervals.prior_degrees`).
    """
    half = np.broadcast_to(np.asarray(degrees, dtype=np.float64) / 2.0, variances.shape)
    logs = np.log(variances) - scipy.special.psi(half) + np.log(half)
    prior = np.exp(logs.mean(axis=-1))
    spread = logs.var(axis=-1, ddof=1) - trigamma(half).mean(axis=-1)
    cap = prior_degrees(settings)
    least = float(trigamma(np.asarray(cap / 2.0)))
    worth = np.where(spread <= least, cap, 2.0 * inverse_trigamma(np.maximum(spread, least)))
    weight, own = worth[..., np.newaxis], 2.0 * half
    shrunk = (weight * prior[..., np.newaxis] + own * variances) / (weight + own)
    return Moderated(shrunk, np.minimum(weight + own, own.sum(axis=-1, keepdims=True)), prior, worth)


def half_widths(variances: Array, counts: Array, settings: int, each: float, plain: float) -> Array:
    """Return the half-widths of the intervals for the mean differences in one pool.

    They have shape (..., pairs) and the unit of the differences. `variances` and `settings` are as in `moderate`;
    `counts` contains the number of differences (3 or more) behind each variance. `each` is the confidence of an
    interval in its family, and `plain` is the confidence of the setting's own interval, which serves as the floor.
    """
    counts = np.broadcast_to(np.asarray(counts, dtype=np.float64), variances.shape)
    moderated = moderate(variances, counts - 1.0, settings)
    shared = critical(moderated.degrees, each) * np.sqrt(moderated.variance / counts)
    return np.maximum(shared, critical(counts - 1.0, plain) * np.sqrt(variances / counts))


def critical(degrees: Array, confidence: float) -> Array:
    """Return the half-widths of two-sided t-intervals in standard errors."""
    return np.asarray(scipy.special.stdtrit(degrees, 1.0 - (1.0 - confidence) / 2.0), dtype=np.float64)


def trigamma(x: Array) -> Array:
    """Return the second derivative of the log-gamma function at x > 0: the Hurwitz zeta function zeta(2, x)."""
    return np.asarray(scipy.special.zeta(2.0, x), dtype=np.float64)


def inverse_trigamma(y: Array) -> Array:
    """Return the x > 0 with trigamma(x) = y, for y > 0.

    This applies Newton's method to 1 / trigamma, which is nearly linear, so the iteration converges from 1/2 + 1/y
    without overshooting (Smyth 2004, appendix). For y above 1e7 and below 1e-6, the limits 1/sqrt(y) and 1/y are
    accurate enough.
    """
    inner = np.clip(y, 1e-6, 1e7)
    x = 0.5 + 1.0 / inner
    for _ in range(50):
        value = trigamma(x)
        step = value * (1.0 - value / inner) / (-2.0 * scipy.special.zeta(3.0, x))
        x = x + step
        if np.all(np.abs(step) <= 1e-10 * x):
            break
    return np.where(y > 1e7, 1.0 / np.sqrt(y), np.where(y < 1e-6, 1.0 / y, x))


@dataclass(frozen=True)
class Pair:
    """Two sides whose mean difference is estimated, with their setting names. Pairs of the same `kind` form a pool."""

    a: BlockValues
    b: BlockValues
    names: tuple[str, str]
    kind: Hashable = None

    @property
    def differences(self) -> list[float]:
        """The differences a - b over the common keys."""
        return [self.a[key] - self.b[key] for key in self.a if key in self.b]


@dataclass(frozen=True)
class Pool:
    """Pairs of the same kind.

    `members` contains their indices among all pairs; `variances` and `counts` are in the same order.
    """

    members: tuple[int, ...]
    variances: tuple[float, ...]
    counts: tuple[int, ...]
    settings: int

    @property
    def moderated(self) -> Moderated:
        """The members' variances, shrunk towards each other."""
        return moderate(np.array(self.variances), np.array(self.counts) - 1.0, self.settings)


def pools(pairs: Sequence[Pair]) -> list[Pool]:
    """Return the pools of two or more pairs of the same kind, each with at least 3 common keys and some variance."""
    kinds: dict[Hashable, list[int]] = {}
    for index, pair in enumerate(pairs):
        if is_paired(pair.a, pair.b) and paired_interval(pair.a, pair.b, Family()).half_width is not None:
            kinds.setdefault(pair.kind, []).append(index)
    result = []
    for members in kinds.values():
        if len(members) > 1:
            differences = [pairs[index].differences for index in members]
            settings = {name for index in members for name in pairs[index].names}
            variances = tuple(variance(values) for values in differences)
            result.append(Pool(tuple(members), variances, tuple(map(len, differences)), len(settings)))
    return result


def simultaneous_intervals(
    pairs: Sequence[Pair], family: Family, unpooled: Callable[[BlockValues, BlockValues, Family], Interval]
) -> list[Interval]:
    """Return the interval for each pair's mean difference; `unpooled` computes it for pairs outside any pool."""
    result = [unpooled(pair.a, pair.b, family) for pair in pairs]
    for pool in pools(pairs):
        widths = half_widths(
            np.array(pool.variances), np.array(pool.counts), pool.settings, family.each, family.confidence
        )
        for index, half_width in zip(pool.members, widths, strict=True):
            result[index] = Interval(result[index].center, float(half_width), result[index].count)
    return result


# Repeated confidence intervals: alpha spending keeps the total error over all looks within that of one family.


def alpha_spent(alpha: float, fraction: float) -> float:
    """Return how much of the two-sided error `alpha` may be spent once `fraction` of the blocks has been measured."""
    return 4.0 * float(scipy.special.ndtr(scipy.special.ndtri(alpha / 4.0) / math.sqrt(min(1.0, fraction))))


@lru_cache(maxsize=256)
def nominal_levels(alpha: float, looks: Sequence[int] = LOOKS) -> tuple[float, ...]:
    """Return the two-sided significance level of each look. `looks` lists block counts; the last one is the total."""
    levels: list[float] = []
    grid: Array = np.zeros(0)
    density: Array = grid
    for number, blocks in enumerate(looks):
        now = blocks / looks[-1]
        before = looks[number - 1] / looks[-1] if number else 0.0
        due = alpha_spent(alpha, now) - (alpha_spent(alpha, before) if number else 0.0)
        step = math.sqrt(now - before)
        if number:
            crossing = _crossing_probability(grid, density, step)
            bound = float(scipy.optimize.brentq(lambda at, crossing=crossing, due=due: crossing(at) - due, 0.0, 12.0))
        else:
            bound = -float(scipy.special.ndtri(due / 2.0)) * step
        levels.append(2.0 * float(scipy.special.ndtr(-bound / math.sqrt(now))))
        inside = np.linspace(-bound, bound, _GRID_POINTS)
        distance = inside[:, None] - grid[None, :] if number else inside
        kernel = np.exp(-((distance / step) ** 2) / 2) / (step * math.sqrt(2.0 * math.pi))
        density = np.asarray(np.trapezoid(kernel * density[None, :], grid, axis=1)) if number else kernel
        grid = inside
    return tuple(levels)


def _crossing_probability(grid: Array, density: Array, step: float) -> Callable[[float], float]:
    """Return a function of `bound`: the probability of crossing it at this look without an earlier crossing."""

    def probability(bound: float) -> float:
        leaves = scipy.special.ndtr((grid - bound) / step) + scipy.special.ndtr((-bound - grid) / step)
        return float(np.trapezoid(density * leaves, grid))

    return probability


def level_after(blocks: int, alpha: float, looks: Sequence[int] = LOOKS) -> float:
    """Return the significance level after this many blocks: that of the latest look, or 0 before the first look."""
    levels = nominal_levels(alpha, tuple(looks))
    return next((levels[index] for index in reversed(range(len(looks))) if looks[index] <= blocks), 0.0)


def repeated_interval(
    a: Mapping[Key, float], b: Mapping[Key, float], family: Family, looks: Sequence[int] = LOOKS
) -> Interval:
    """Return the repeated confidence interval for the mean of a - b over the common keys.

    If the sides are unpaired, this is Welch's interval, which is not used for verdicts.
    """
    if not is_paired(a, b):
        return welch_interval(list(a.values()), list(b.values()), family)
    plain = paired_interval(a, b, family)
    if plain.half_width is None:
        return plain
    differences = [a[key] - b[key] for key in a if key in b]
    level = level_after(plain.count, 1.0 - family.each, looks)
    critical_value = float(scipy.special.stdtrit(plain.count - 1, 1.0 - level / 2.0))
    return Interval(mean(differences), critical_value * math.sqrt(variance(differences) / plain.count), plain.count)
