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

import numpy as np
from scipy import special

from accelsweep.analysis.intervals import Family, Interval, critical_t, mean, variance
from accelsweep.analysis.simultaneous_intervals import moderate

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


# Each group of values against the mean of the other groups: intervals that hold together, and Holm's correction.

_NO_SPREAD = 1e-12
"""A spread below this is rounding, not noise."""


@dataclass(frozen=True)
class Deviation:
    """A group's mean less the mean of the other groups' means; `reason` says why there is no interval for it.

    `error` is its standard error, with `degrees` degrees of freedom. `own` is the standard error that the group's
    values show by themselves, with one degree less than their number, `count`.
    """

    center: float
    error: float
    degrees: float
    own: float
    count: int
    reason: str | None = None

    def interval(self, family: Family) -> Interval:
        """Return the interval as one of `family`; it is never narrower than the plain one of the group's own noise."""
        if self.reason is not None:
            return Interval(self.center, None, self.count, self.reason)
        shared = critical_t(self.degrees, family.confidence, family.size) * self.error
        return Interval(self.center, max(shared, critical_t(self.count - 1, family.confidence) * self.own), self.count)

    def chance_below(self, bound: float, confidence: float) -> float:
        """Return the p-value of the deviation being `bound` or more, doubled; 1 where the plain interval holds it.

        Doubled, it is below 1 - confidence just where a two-sided interval lies below the bound.
        """
        if self.reason is not None or self.center + critical_t(self.count - 1, confidence) * self.own >= bound:
            return 1.0
        return min(1.0, 2.0 * float(special.stdtr(self.degrees, (self.center - bound) / self.error)))

    @property
    def mirrored(self) -> Deviation:
        """The same deviation with the opposite sign."""
        return Deviation(-self.center, self.error, self.degrees, self.own, self.count, self.reason)


def against_others(groups: Sequence[Sequence[float]]) -> list[Deviation]:
    """Return the deviation of each group of at least one value; there are two groups or more.

    A group of a single value, or of values without any spread, has no interval. It is among the others all the same.
    """
    noisy = [number for number, values in enumerate(groups) if _spread(values) > _NO_SPREAD]
    squared, degrees = [_spread(values) ** 2 for values in groups], [max(1.0, len(values) - 1.0) for values in groups]
    if len(noisy) > 1:
        own = np.array([squared[number] for number in noisy])
        found = moderate(own, np.array([degrees[number] for number in noisy]), len(noisy))
        for place, number in enumerate(noisy):
            squared[number], degrees[number] = float(found.variance[place]), float(found.degrees[place])
    means = [mean(values) for values in groups]
    parts = [one / len(values) for one, values in zip(squared, groups, strict=True)]
    return [_deviation(number, groups[number], means, parts, degrees) for number in range(len(groups))]


def _spread(values: Sequence[float]) -> float:
    return math.sqrt(variance(values)) if len(values) > 1 else 0.0


def _deviation(
    number: int, values: Sequence[float], means: Sequence[float], parts: Sequence[float], degrees: Sequence[float]
) -> Deviation:
    """Return one deviation; the degrees of freedom of its error are Welch's and Satterthwaite's."""
    others = [other for other in range(len(means)) if other != number]
    center = means[number] - mean([means[other] for other in others])
    spread = _spread(values)
    if spread <= _NO_SPREAD:
        one = "one round shows no spread; an interval needs at least 2"
        reason = one if len(values) < 2 else f"all {len(values)} values are identical, so their spread is unknown"
        return Deviation(center, 0.0, 1.0, 0.0, len(values), reason)
    shares = {number: parts[number], **{other: parts[other] / len(others) ** 2 for other in others}}
    squared = math.fsum(shares.values())
    free = squared**2 / math.fsum(share**2 / degrees[place] for place, share in shares.items())
    return Deviation(center, math.sqrt(squared), free, spread / math.sqrt(len(values)), len(values))


def holm(chances: Sequence[float]) -> list[float]:
    """Return p-values corrected for their number: those at or below a level keep the chance of any false one below it.

    Source: S. Holm, "A simple sequentially rejective multiple test procedure", Scandinavian Journal of Statistics 6
    (1979). It holds whatever the dependence, and never accepts less than Bonferroni's does.
    """
    order, found, largest = sorted(range(len(chances)), key=chances.__getitem__), [1.0] * len(chances), 0.0
    for step, place in enumerate(order):
        largest = max(largest, min(1.0, (len(chances) - step) * chances[place]))
        found[place] = largest
    return found
