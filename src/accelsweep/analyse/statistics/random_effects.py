"""One-way random effects: how much groups of values differ, and how much the values within a group do.

A group's values are independent given its level, and the levels are a sample: y = m + a + e. `between` is the standard
deviation of a and `within` that of e. Estimates are those of the analysis of variance (Searle, "Linear Models", 1971,
ch. 9). Groups may have unlike numbers of values. Then the sum of squares between them is the unweighted one, with the
harmonic mean of the numbers. Source: Thomas and Hultquist, "Interval estimation for the unbalanced case of the one-way
random effects model" (Annals of Statistics 6, 1978).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from scipy import special

from accelsweep.analysis.intervals import mean, variance

FEWEST_GROUPS = 2
"""Groups of two or more values, without which there is nothing to tell apart."""

FEWEST_GROUPS_FOR_AN_INTERVAL = 3
"""Two groups have one degree of freedom between them: an interval would reach from 0 to hundreds of times the value."""


@dataclass(frozen=True)
class Scatter:
    """A standard deviation with its interval, in the units of the values; without one, `reason` says why."""

    value: float
    low: float | None
    high: float | None
    reason: str | None = None


@dataclass(frozen=True)
class Components:
    """The two standard deviations, from `groups` groups with `degrees` degrees of freedom within them."""

    between: Scatter
    within: Scatter
    groups: int
    degrees: int


def components(groups: Sequence[Sequence[float]], confidence: float) -> Components | None:
    """Return the components of groups of values, each with an interval of this confidence of its own.

    Groups of a single value are left out, because they tell nothing of the values within them. None for fewer than two
    others, and for groups whose values do not differ at all.
    """
    usable = [values for values in groups if len(values) > 1]
    if len(usable) < FEWEST_GROUPS:
        return None
    degrees = sum(map(len, usable)) - len(usable)
    within = math.fsum(variance(values) * (len(values) - 1) for values in usable) / degrees
    if within <= 0.0:
        return None
    size = len(usable) / math.fsum(1.0 / len(values) for values in usable)
    between = size * variance([mean(values) for values in usable])
    return Components(
        between=_between_scatter(between, within, len(usable), degrees, size, confidence),
        within=Scatter(math.sqrt(within), *_within(within, degrees, (1.0 - confidence) / 2.0)),
        groups=len(usable),
        degrees=degrees,
    )


def _between_scatter(
    between: float, within: float, groups: int, degrees: int, size: float, confidence: float
) -> Scatter:
    """Return the deviation between groups, by its mean square `between` and that within them."""
    value = _root((between - within) / size)
    if groups < FEWEST_GROUPS_FOR_AN_INTERVAL:
        return Scatter(value, None, None, f"{groups} groups are too few for an interval: it takes 3")
    low, high = _between(between, within, groups - 1, degrees, (1.0 - confidence) / 2.0)
    if high <= 0.0:
        # The groups' means lie closer together than chance within the groups lets them. An interval [0, 0] would claim
        # certainty that no groups differ.
        return Scatter(value, None, None, "the groups differ less than their own values let them")
    return Scatter(value, _root(low / size), _root(high / size))


def _root(squared: float) -> float:
    return math.sqrt(max(0.0, squared))


def _within(square: float, degrees: int, tail: float) -> tuple[float, float]:
    """Return the exact interval of a standard deviation, by the chi-square distribution of its mean square."""
    ends = (float(special.chdtri(degrees, probability)) for probability in (tail, 1.0 - tail))
    low, high = (math.sqrt(degrees * square / end) for end in ends)
    return low, high


def _between(first: float, second: float, free: int, within: int, tail: float) -> tuple[float, float]:
    """Return the interval of the difference of two expected mean squares, with `tail` beyond each of its ends.

    The modified large sample method of Graybill and Wang, "Confidence intervals on nonnegative linear combinations of
    variances" (JASA 75, 1980), for differences: Ting, Burdick, Graybill, Jeyaratnam and Lu, "Confidence intervals on
    linear combinations of variance components that are unrestricted in sign" (Journal of Statistical Computation and
    Simulation 35, 1990). See Burdick and Graybill, "Confidence Intervals on Variance Components" (1992), section 3.3.
    """
    upper, lower = _f(tail, free, within), _f(1.0 - tail, free, within)
    g1, g2 = 1.0 - 1.0 / _f(tail, free), 1.0 - 1.0 / _f(tail, within)
    h1, h2 = 1.0 / _f(1.0 - tail, free) - 1.0, 1.0 / _f(1.0 - tail, within) - 1.0
    g12 = ((upper - 1.0) ** 2 - (g1 * upper) ** 2 - h2**2) / upper
    h12 = ((1.0 - lower) ** 2 - (h1 * lower) ** 2 - g2**2) / lower
    below = (g1 * first) ** 2 + (h2 * second) ** 2 + g12 * first * second
    above = (h1 * first) ** 2 + (g2 * second) ** 2 + h12 * first * second
    return first - second - _root(below), first - second + _root(above)


def _f(tail: float, first: int, second: int | None = None) -> float:
    """Return the point that Fisher's F exceeds with probability `tail`; None stands for infinite degrees of freedom."""
    if second is None:
        return float(special.chdtri(first, tail)) / first
    return float(special.fdtri(first, second, 1.0 - tail))
