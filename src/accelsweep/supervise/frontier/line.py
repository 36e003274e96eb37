"""The line through the peaks of the tries: what each sample takes, and what is there without any.

Ordinary least squares, with the intervals of its two coefficients by Student's t (N. Draper and H. Smith, "Applied
Regression Analysis", section 1.4).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

from accelsweep.core.recorded.frontier import SEARCH_CONFIDENCE, Coefficient


class Line(NamedTuple):
    """Slope (bytes a sample) and intercept (bytes)."""

    per_sample: Coefficient
    fixed: Coefficient


def line_through(points: Sequence[tuple[int, int]]) -> Line:
    """Return the line through (samples, bytes). It takes two points with different samples, an interval a third."""
    if len({samples for samples, _ in points}) < 2:
        why = "fewer than two batches that fit have a peak"
        return Line(Coefficient(value=None, reason=why), Coefficient(value=None, reason=why))
    count = len(points)
    mean_x, mean_y = (math.fsum(values) / count for values in zip(*points, strict=True))
    spread = math.fsum((x - mean_x) ** 2 for x, _ in points)
    slope = math.fsum((x - mean_x) * (y - mean_y) for x, y in points) / spread
    intercept = mean_y - slope * mean_x
    if count < 3:
        why = "two batches give a line without an interval"
        return Line(Coefficient(value=slope, reason=why), Coefficient(value=intercept, reason=why))
    left = math.fsum((y - intercept - slope * x) ** 2 for x, y in points) / (count - 2)
    errors = math.sqrt(left / spread), math.sqrt(left * (1 / count + mean_x**2 / spread))
    return Line(
        *(_with_interval(value, error, count - 2) for value, error in zip((slope, intercept), errors, strict=True))
    )


def _with_interval(value: float, error: float, degrees: int) -> Coefficient:
    from accelsweep.repeats.student import critical_t  # scipy, which a rank has loaded before the first try

    half = critical_t(degrees, SEARCH_CONFIDENCE) * error
    return Coefficient(value=value, low=value - half, high=value + half)
