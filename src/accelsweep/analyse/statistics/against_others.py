"""Each group of values against the mean of the other groups: intervals that hold together, and Holm's correction.

A group's own variance is shrunk towards that of the others, as it is for settings (`moderated`). The groups are those
that were asked about. So what they differ by is no noise here, and an interval says nothing of further groups.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy import special

from accelsweep.analysis.intervals import Family, Interval, critical_t, mean, variance
from accelsweep.analysis.simultaneous_intervals import moderate

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
