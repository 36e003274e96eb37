"""Changes of level in a series of rates: a segmentation proposes, and an interval for each step decides.

A regression tree over the points' numbers is grown and pruned by its cost and complexity (Breiman and others,
"Classification and Regression Trees", 1984). That finds changes of a mean (Gey and Lebarbier, "Using CART to detect
multiple change points in the mean for large samples", 2008). A further level costs what Schwarz's criterion says (Yao,
"Estimating the number of change-points via Schwarz' criterion", 1988). A proposed change is kept if the t-interval of
its step holds no zero. It is widened for every place at which a change could stand, by Bonferroni's inequality.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from scipy import special

from accelsweep.analysis.intervals import Family, Interval, critical_t, mean, variance

FEWEST_POINTS = 4
"""A series of fewer points has no change: what one more point would do to it is not known."""

_NO_SPREAD = 1e-9
"""A relative spread below this is rounding, not noise."""

_MEDIAN = math.sqrt(2.0) * float(special.ndtri(0.75))
"""The median size of the difference of two values whose noise is 1."""


@dataclass(frozen=True)
class Level:
    """A point: the logarithm of a rate, and the squared standard error that its own repeats show; None for one."""

    value: float
    own_variance: float | None

    @classmethod
    def of(cls, log_rates: Sequence[float]) -> Level:
        """Return the mean of a point's repeats."""
        own = variance(log_rates) / len(log_rates) if len(log_rates) > 1 else None
        return cls(mean(log_rates), own)


@dataclass(frozen=True)
class LevelStep:
    """A step of a series before the point number `at` (from 0), on the logarithmic scale."""

    at: int
    interval: Interval

    @property
    def strength(self) -> float:
        """The size of the step in half-widths of its interval; 0 without an interval."""
        half = self.interval.half_width
        return abs(self.interval.center) / half if half else 0.0


def level_steps(points: Sequence[Level], family: Family) -> tuple[LevelStep, ...]:
    """Return the supported steps of a series, in its order. `family` is one over the places of all series."""
    if len(points) < FEWEST_POINTS:
        return ()
    known = [point.own_variance for point in points if point.own_variance is not None]
    usual = math.fsum(known) / len(known) if known else 0.0
    own = [usual if point.own_variance is None else point.own_variance for point in points]
    values = [point.value for point in points]
    places = _proposed(values, usual)
    while places:
        found = [_step(values, own, places, number, family) for number in range(len(places))]
        weakest = min(found, key=lambda step: (step.strength, abs(step.interval.center)))
        if weakest.strength > 1.0:
            return tuple(found)
        places.remove(weakest.at)  # the levels beside it become one, which makes the others' intervals anew
    return ()


def _proposed(values: Sequence[float], usual: float) -> list[int]:
    """Return the numbers of the points before which the pruned tree sets a change."""
    from sklearn.tree import DecisionTreeRegressor  # takes a second, and a short series has no change anyway

    noise = math.sqrt(max(_between(values), usual, _NO_SPREAD**2))
    count = len(values)
    penalty = 2.0 * math.log(count) / count  # the tree's cost is a mean over the points, not a sum
    tree = DecisionTreeRegressor(ccp_alpha=penalty, random_state=0)
    tree.fit(np.arange(count).reshape(-1, 1), np.asarray(values) / noise)
    grown = tree.tree_
    return sorted(math.floor(grown.threshold[node]) + 1 for node in range(grown.node_count) if grown.feature[node] == 0)


def _between(values: Sequence[float]) -> float:
    """Return the variance between neighbours by the median of their differences, which few changes do not move."""
    return (float(np.median(np.abs(np.diff(values)))) / _MEDIAN) ** 2


def _step(
    values: Sequence[float], own: Sequence[float], places: Sequence[int], number: int, family: Family
) -> LevelStep:
    """Return one of the proposed steps with its interval.

    The noise of a level is what the points scatter around their levels, pooled over the series. It is never less than
    what neighbours differ by, because levels are set where they fit, nor than what the repeats within its points show.
    """
    ends = [0, *places, len(values)]
    parts = [values[a:b] for a, b in pairwise(ends)]
    center, degrees = mean(parts[number + 1]) - mean(parts[number]), len(values) - len(parts)
    count = min(len(parts[number]), len(parts[number + 1]))
    if degrees < 1:
        return LevelStep(places[number], Interval(center, None, count, "each point is a level of its own"))
    pooled = math.fsum(variance(part) * (len(part) - 1) for part in parts if len(part) > 1) / degrees
    pooled = max(pooled, _between(values))
    squared = 0.0
    for a, b in ((ends[number], ends[number + 1]), (ends[number + 1], ends[number + 2])):
        squared += max(pooled / (b - a), math.fsum(own[a:b]) / (b - a) ** 2)
    if math.sqrt(squared) <= _NO_SPREAD:
        return LevelStep(places[number], Interval(center, None, count, "the points of each level are identical"))
    half = critical_t(degrees, family.confidence, family.size) * math.sqrt(squared)
    return LevelStep(places[number], Interval(center, half, count))
