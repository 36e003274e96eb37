"""Variances of paired differences, each shrunk towards those of its family, and interval half widths made of them.

Three blocks show little of a row's noise, and the other rows show the usual noise. The rows share their baseline, so
their variances look more alike than they are: the prior's degrees of freedom are capped. No half width is below that of
the row's own plain interval. Arrays have any leading axes (simulated sweeps) and the pairs of one pool on the last.

Source: G. Smyth, "Linear models and empirical Bayes methods for assessing differential expression in microarray
experiments", Statistical Applications in Genetics and Molecular Biology 3 (2004). The cap and the floor are ours.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy import optimize, special

from accelsweep.analysis.intervals import (
    Family,
    Interval,
    Key,
    mean,
    paired_interval,
    pairs_up,
    prior_degrees,
    variance,
    welch_interval,
)
from accelsweep.config.sweep_options import LOOKS

Array = npt.NDArray[np.float64]

_EXACT = 1e-10
"""The relative step below which Newton's iteration has converged."""


@dataclass(frozen=True)
class Moderated:
    """The noise of a pool of pairs; shapes (..., pairs), but (...) for the two values of the prior.

    `variance` (of one paired difference, in squared units of the differences) has `degrees` degrees of freedom. `prior`
    is the usual variance in the pool, and it is worth `prior_degrees` degrees of freedom.
    """

    variance: Array
    degrees: Array
    prior: Array
    prior_degrees: Array


def moderate(variances: Array, degrees: Array, cells: int) -> Moderated:
    """Return sample variances, (..., pairs) with pairs >= 2 and each above 0, shrunk towards their common prior.

    `degrees` are those of the variances, (pairs,) or the same shape; `cells` the cells in the pool, baseline included.
    Smyth 2004, section 6.2: the part due to chance alone is taken away from the logarithms of the variances. The rest
    has a mean (the prior variance) and a spread (the prior's degrees of freedom, here at most
    `analysis.intervals.prior_degrees`).
    """
    half = np.broadcast_to(np.asarray(degrees, dtype=np.float64) / 2.0, variances.shape)
    logs = np.log(variances) - special.psi(half) + np.log(half)
    prior = np.exp(logs.mean(axis=-1))
    spread = logs.var(axis=-1, ddof=1) - trigamma(half).mean(axis=-1)
    cap = prior_degrees(cells)
    least = float(trigamma(np.asarray(cap / 2.0)))
    worth = np.where(spread <= least, cap, 2.0 * inverse_trigamma(np.maximum(spread, least)))
    weight, own = worth[..., np.newaxis], 2.0 * half
    shrunk = (weight * prior[..., np.newaxis] + own * variances) / (weight + own)
    return Moderated(shrunk, np.minimum(weight + own, own.sum(axis=-1, keepdims=True)), prior, worth)


def half_widths(variances: Array, counts: Array, cells: int, each: float, plain: float) -> Array:
    """Return the half widths, (..., pairs), of the mean differences of one pool; in units of the differences.

    `variances` and `cells` as in `moderate`, `counts` are the differences behind each (3 or more). `each` is the
    confidence of an interval in its family, `plain` that of the row's own interval, which is the floor.
    """
    numbers = np.broadcast_to(np.asarray(counts, dtype=np.float64), variances.shape)
    found = moderate(variances, numbers - 1.0, cells)
    shared = critical(found.degrees, each) * np.sqrt(found.variance / numbers)
    own = critical(numbers - 1.0, plain) * np.sqrt(variances / numbers)
    return np.maximum(shared, own)


def critical(degrees: Array, confidence: float) -> Array:
    """Return the half width of two-sided t-intervals in standard errors."""
    return np.asarray(special.stdtrit(degrees, 1.0 - (1.0 - confidence) / 2.0), dtype=np.float64)


def trigamma(x: Array) -> Array:
    """Return the second derivative of the logarithm of the gamma function at x > 0: Hurwitz' zeta(2, x)."""
    return np.asarray(special.zeta(2.0, x), dtype=np.float64)


def inverse_trigamma(y: Array) -> Array:
    """Return the x > 0 with trigamma(x) = y, for y > 0.

    Newton's iteration on 1 / trigamma, which is nearly linear, so that it converges from 1/2 + 1/y without
    overshooting (Smyth 2004, appendix). Beyond 1e7 and below 1e-6 the limits 1/sqrt(y) and 1/y are exact enough.
    """
    inner = np.clip(y, 1e-6, 1e7)
    x = 0.5 + 1.0 / inner
    for _ in range(50):
        value = trigamma(x)
        step = value * (1.0 - value / inner) / (-2.0 * special.zeta(3.0, x))
        x = x + step
        if np.all(np.abs(step) <= _EXACT * x):
            break
    return np.where(y > 1e7, 1.0 / np.sqrt(y), np.where(y < 1e-6, 1.0 / y, x))


# Intervals of many paired differences that hold together, with variances moderated over pools of like pairs.

ValuesOfBlocks = Mapping[Any, float]
"""A side of a pair: its values (log rates, qualities) by the key that pairs them (a block, a seed)."""


@dataclass(frozen=True)
class Pair:
    """Two sides whose mean difference is asked for, and their cells' names. Pairs of one `kind` make a pool."""

    a: ValuesOfBlocks
    b: ValuesOfBlocks
    names: tuple[str, str]
    kind: Hashable = None

    @property
    def differences(self) -> list[float]:
        """The differences a - b, one for each key that both sides have."""
        return [self.a[key] - self.b[key] for key in self.a if key in self.b]


@dataclass(frozen=True)
class Pool:
    """Pairs of one kind, `members` by their position among all pairs, with the differences' variances and numbers."""

    members: tuple[int, ...]
    variances: tuple[float, ...]
    counts: tuple[int, ...]
    cells: int

    @property
    def moderated(self) -> Moderated:
        """The members' variances, shrunk towards each other."""
        return moderate(np.array(self.variances), np.array(self.counts) - 1.0, self.cells)

    def half_widths(self, family: Family) -> list[float]:
        """Return the half width of each member's interval, as part of `family` and never below its own plain one."""
        found = half_widths(np.array(self.variances), np.array(self.counts), self.cells, family.each, family.confidence)
        return [float(one) for one in found]


def pools(pairs: Sequence[Pair]) -> list[Pool]:
    """Return the pools of two or more pairs: of one kind, with 3 or more shared keys each, and with some spread."""
    kinds: dict[Hashable, list[int]] = {}
    for index, pair in enumerate(pairs):
        if _has_spread(pair):
            kinds.setdefault(pair.kind, []).append(index)
    return [_pool(pairs, members) for members in kinds.values() if len(members) > 1]


def _has_spread(pair: Pair) -> bool:
    return pairs_up(pair.a, pair.b) and paired_interval(pair.a, pair.b, Family()).half_width is not None


def _pool(pairs: Sequence[Pair], members: Sequence[int]) -> Pool:
    differences = [pairs[index].differences for index in members]
    cells = {name for index in members for name in pairs[index].names}
    return Pool(
        tuple(members),
        tuple(variance(values) for values in differences),
        tuple(len(values) for values in differences),
        len(cells),
    )


def intervals(
    pairs: Sequence[Pair], family: Family, alone: Callable[[ValuesOfBlocks, ValuesOfBlocks, Family], Interval]
) -> list[Interval]:
    """Return the interval of each pair's mean difference; `alone` gives those of the pairs that are in no pool."""
    found = [alone(pair.a, pair.b, family) for pair in pairs]
    for pool in pools(pairs):
        for index, half_width in zip(pool.members, pool.half_widths(family), strict=True):
            found[index] = Interval(found[index].center, half_width, found[index].count)
    return found


# Intervals that may be looked at several times: the error of all looks together stays within one family's.

_POINTS = 801
"""Points of the grid on which the density between two bounds is integrated."""


def spent(alpha: float, fraction: float) -> float:
    """Return how much of the two-sided error `alpha` may be spent when this fraction of the blocks is measured."""
    return 4.0 * float(special.ndtr(special.ndtri(alpha / 4.0) / math.sqrt(min(1.0, fraction))))


@lru_cache(maxsize=256)
def nominal_levels(alpha: float, looks: Sequence[int] = LOOKS) -> tuple[float, ...]:
    """Return the two-sided significance level of each look, after so many blocks; the last look has them all."""
    levels: list[float] = []
    grid = density = np.zeros(0)
    for number, blocks in enumerate(looks):
        now = blocks / looks[-1]
        before = looks[number - 1] / looks[-1] if number else 0.0
        due, step = spent(alpha, now) - (spent(alpha, before) if number else 0.0), math.sqrt(now - before)
        bound = _bound(due, grid, density, step) if number else -float(special.ndtri(due / 2.0)) * step
        levels.append(2.0 * float(special.ndtr(-bound / math.sqrt(now))))
        inside = np.linspace(-bound, bound, _POINTS)
        density = _moved(inside, grid, density, step) if number else np.exp(-((inside / step) ** 2) / 2) / _unit(step)
        grid = inside
    return tuple(levels)


def _bound(due: float, grid: np.ndarray, density: np.ndarray, step: float) -> float:
    """Return the bound beyond which the error that is `due` now lies."""
    return float(optimize.brentq(lambda at: _beyond(at, grid, density, step) - due, 0.0, 12.0))


def _beyond(bound: float, grid: np.ndarray, density: np.ndarray, step: float) -> float:
    """Return the probability to be within all bounds so far and beyond this one now."""
    leaves = special.ndtr((grid - bound) / step) + special.ndtr((-bound - grid) / step)
    return float(np.trapezoid(density * leaves, grid))


def _moved(inside: np.ndarray, grid: np.ndarray, density: np.ndarray, step: float) -> np.ndarray:
    kernel = np.exp(-(((inside[:, None] - grid[None, :]) / step) ** 2) / 2) / _unit(step)
    return np.asarray(np.trapezoid(kernel * density[None, :], grid, axis=1))


def _unit(step: float) -> float:
    return step * math.sqrt(2.0 * math.pi)


def level_after(blocks: int, alpha: float, looks: Sequence[int] = LOOKS) -> float:
    """Return the significance level after so many blocks; between two looks it is that of the earlier one.

    Before the first look there is none: 0.
    """
    levels = nominal_levels(alpha, tuple(looks))
    passed = [level for at, level in zip(looks, levels, strict=True) if at <= blocks]
    return passed[-1] if passed else 0.0


def repeated_interval(
    a: Mapping[Key, float], b: Mapping[Key, float], family: Family, looks: Sequence[int] = LOOKS
) -> Interval:
    """Return the repeated confidence interval of the mean of a - b over the keys that both have.

    Sides that do not pair up have Welch's interval, on which no verdict rests.
    """
    if not pairs_up(a, b):
        return welch_interval(list(a.values()), list(b.values()), family)
    plain = paired_interval(a, b, family)
    differences = [a[key] - b[key] for key in a if key in b]
    if plain.half_width is None:
        return plain
    level = level_after(len(differences), 1.0 - family.each, looks)
    critical = float(special.stdtrit(len(differences) - 1, 1.0 - level / 2.0))
    error = math.sqrt(variance(differences) / len(differences))
    return Interval(mean(differences), critical * error, len(differences))
