"""Statistics for groups of values: one-way random effects, and each group compared with the mean of the others.

The random effects model is y = m + a + e, where a is the group effect and e the individual error. `between` is the
standard deviation of a, `within` that of e; both are analysis-of-variance estimates (Searle, "Linear Models", 1971, ch.
9). For unbalanced groups the sum of squares between them is unweighted, with the harmonic mean of the group sizes:
Thomas and Hultquist, "Interval estimation for the unbalanced case of the one-way random effects model" (Annals of
Statistics 6, 1978).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import scipy

from accelsweep.analysis.intervals import Family, Interval, critical_t, mean, variance
from accelsweep.analysis.simultaneous_intervals import moderate

MIN_GROUPS = 2
"""With fewer groups that contain at least two values, the variance components are not identifiable."""

MIN_GROUPS_FOR_INTERVAL = 3
"""Two groups leave one degree of freedom between them, so the interval would reach hundreds of times the value."""

_NO_SPREAD = 1e-12
"""A standard deviation below this is rounding error, not noise."""


@dataclass(frozen=True)
class ComponentEstimate:
    """A standard deviation and its interval in the units of the values; `reason` explains why there is no interval."""

    value: float
    low: float | None
    high: float | None
    reason: str | None = None


@dataclass(frozen=True)
class VarianceComponents:
    """Both standard deviations, from `groups` groups with `degrees` degrees of freedom within them."""

    between: ComponentEstimate
    within: ComponentEstimate
    groups: int
    degrees: int


def variance_components(groups: Sequence[Sequence[float]], confidence: float) -> VarianceComponents | None:
    """Return the variance components; `confidence` applies to each interval individually.

    Groups with a single value are left out. Returns None if fewer than two groups remain, or if no group has any
    spread.
    """
    usable = [values for values in groups if len(values) > 1]
    if len(usable) < MIN_GROUPS:
        return None
    degrees = sum(map(len, usable)) - len(usable)
    within = math.fsum(variance(values) * (len(values) - 1) for values in usable) / degrees
    if within <= 0.0:
        return None
    size = len(usable) / math.fsum(1.0 / len(values) for values in usable)
    between = size * variance([mean(values) for values in usable])
    return VarianceComponents(
        between=_between_estimate(between, within, len(usable), degrees, size, confidence),
        within=ComponentEstimate(math.sqrt(within), *_within_interval(within, degrees, (1.0 - confidence) / 2.0)),
        groups=len(usable),
        degrees=degrees,
    )


def _between_estimate(
    between: float, within: float, groups: int, degrees: int, size: float, confidence: float
) -> ComponentEstimate:
    """Return the standard deviation between groups from the mean squares `between` and `within`."""
    value = _sqrt((between - within) / size)
    if groups < MIN_GROUPS_FOR_INTERVAL:
        reason = f"{groups} groups are too few for an interval, which needs {MIN_GROUPS_FOR_INTERVAL}"
        return ComponentEstimate(value, None, None, reason)
    low, high = _difference_interval(between, within, groups - 1, degrees, (1.0 - confidence) / 2.0)
    if high <= 0.0:
        # The group means are closer together than the noise within groups implies. The interval [0, 0] would claim
        # with certainty that groups do not differ.
        return ComponentEstimate(value, None, None, "the groups differ by less than the noise within them explains")
    return ComponentEstimate(value, _sqrt(low / size), _sqrt(high / size))


def _sqrt(squared: float) -> float:
    return math.sqrt(max(0.0, squared))


def _within_interval(square: float, degrees: int, tail: float) -> tuple[float, float]:
    """Return the exact chi-square interval of a standard deviation, given its mean square."""
    low, high = (math.sqrt(degrees * square / float(scipy.special.chdtri(degrees, p))) for p in (tail, 1.0 - tail))
    return low, high


def _difference_interval(
    first: float, second: float, first_degrees: int, second_degrees: int, tail: float
) -> tuple[float, float]:
    """Return the interval of the difference between two expected mean squares, with probability `tail` beyond each end.

    This is the modified large sample method of Graybill and Wang, "Confidence intervals on nonnegative linear
    combinations of variances" (JASA 75, 1980), for differences: Ting, Burdick, Graybill, Jeyaratnam and Lu, "Confidence
    intervals on linear combinations of variance components that are unrestricted in sign" (Journal of Statistical
    Computation and Simulation 35, 1990). See Burdick and Graybill, "Confidence Intervals on Variance Components"
    (1992), section 3.3.
    """
    upper, lower = (
        _f_quantile(tail, first_degrees, second_degrees),
        _f_quantile(1.0 - tail, first_degrees, second_degrees),
    )
    g1, g2 = 1.0 - 1.0 / _f_quantile(tail, first_degrees), 1.0 - 1.0 / _f_quantile(tail, second_degrees)
    h1, h2 = 1.0 / _f_quantile(1.0 - tail, first_degrees) - 1.0, 1.0 / _f_quantile(1.0 - tail, second_degrees) - 1.0
    g12 = ((upper - 1.0) ** 2 - (g1 * upper) ** 2 - h2**2) / upper
    h12 = ((1.0 - lower) ** 2 - (h1 * lower) ** 2 - g2**2) / lower
    below = (g1 * first) ** 2 + (h2 * second) ** 2 + g12 * first * second
    above = (h1 * first) ** 2 + (g2 * second) ** 2 + h12 * first * second
    return first - second - _sqrt(below), first - second + _sqrt(above)


def _f_quantile(tail: float, first: int, second: int | None = None) -> float:
    """Return the value that F exceeds with probability `tail`; `second` defaults to infinite degrees of freedom."""
    if second is None:
        return float(scipy.special.chdtri(first, tail)) / first
    return float(scipy.special.fdtri(first, second, 1.0 - tail))


@dataclass(frozen=True)
class Deviation:
    """The mean of a group minus the mean of the other groups' means; `reason` explains why there is no interval.

    `error` is its standard error with `degrees` degrees of freedom. `group_error` is the standard error based only on
    the group's own `count` values.
    """

    center: float
    error: float
    degrees: float
    group_error: float
    count: int
    reason: str | None = None

    def interval(self, family: Family) -> Interval:
        """Return the interval as a member of `family`, never narrower than the plain one based on the group's noise."""
        if self.reason is not None:
            return Interval(self.center, None, self.count, self.reason)
        half_width = critical_t(self.degrees, family.confidence, family.size) * self.error
        group_half_width = critical_t(self.count - 1, family.confidence) * self.group_error
        return Interval(self.center, max(half_width, group_half_width), self.count)

    def p_value_below(self, bound: float, confidence: float) -> float:
        """Return the two-sided p-value for a deviation of `bound` or more; 1 if the group's own interval reaches it.

        It is below 1 - confidence if and only if the two-sided interval is entirely below the bound.
        """
        if self.reason is not None or self.center + critical_t(self.count - 1, confidence) * self.group_error >= bound:
            return 1.0
        return min(1.0, 2.0 * float(scipy.special.stdtr(self.degrees, (self.center - bound) / self.error)))

    def __neg__(self) -> Deviation:
        """Return the deviation with its sign flipped."""
        return replace(self, center=-self.center)


def deviations_from_others(groups: Sequence[Sequence[float]]) -> list[Deviation]:
    """Return the deviation of each of two or more groups, each with at least one value.

    For a group with a single value or no spread, the interval is omitted, but the group is still included among the
    others.
    """
    spreads = [math.sqrt(variance(values)) if len(values) > 1 else 0.0 for values in groups]
    noisy = [index for index, spread in enumerate(spreads) if spread > _NO_SPREAD]
    variances, degrees = [spread**2 for spread in spreads], [max(1.0, len(values) - 1.0) for values in groups]
    if len(noisy) > 1:
        moderated = moderate(
            np.array([variances[index] for index in noisy]), np.array([degrees[index] for index in noisy]), len(noisy)
        )
        for place, index in enumerate(noisy):
            variances[index], degrees[index] = float(moderated.variance[place]), float(moderated.degrees[place])
    means = [mean(values) for values in groups]
    of_mean = [squared / len(values) for squared, values in zip(variances, groups, strict=True)]
    deviations = []
    for index, (values, spread) in enumerate(zip(groups, spreads, strict=True)):
        others = [other for other in range(len(groups)) if other != index]
        center = means[index] - mean([means[other] for other in others])
        if spread <= _NO_SPREAD:
            reason = (
                "one round shows no spread; an interval needs at least 2"
                if len(values) < 2
                else f"all {len(values)} values are identical, so their spread is unknown"
            )
            deviations.append(Deviation(center, 0.0, 1.0, 0.0, len(values), reason))
            continue
        parts = {index: of_mean[index], **{other: of_mean[other] / len(others) ** 2 for other in others}}
        squared_error = math.fsum(parts.values())
        # Welch-Satterthwaite
        error_degrees = squared_error**2 / math.fsum(part**2 / degrees[group] for group, part in parts.items())
        group_error = spread / math.sqrt(len(values))
        deviations.append(Deviation(center, math.sqrt(squared_error), error_degrees, group_error, len(values)))
    return deviations


def holm(p_values: Sequence[float]) -> list[float]:
    """Return p-values corrected for multiple testing; they control the family-wise error rate.

    S. Holm, "A simple sequentially rejective multiple test procedure", Scandinavian Journal of Statistics 6 (1979). The
    procedure is valid under any dependence, and uniformly more powerful than Bonferroni's correction.
    """
    order = sorted(range(len(p_values)), key=p_values.__getitem__)
    corrected, largest = [1.0] * len(p_values), 0.0
    for step, index in enumerate(order):
        largest = max(largest, min(1.0, (len(p_values) - step) * p_values[index]))
        corrected[index] = largest
    return corrected
