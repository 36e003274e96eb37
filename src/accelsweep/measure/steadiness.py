"""The steadiness of a window: one change of level, tested on medians of bins.

A flag after Barrett et al., "Virtual Machine Warmup Blows Hot and Cold" (OOPSLA 2017): a run that never became steady
is doubted, not trimmed. The test is the largest two-sample t statistic over all splits (A. Sen and M. Srivastava, "On
tests for detecting change in mean", 1975). It runs on medians of bins, so that rare stalls and step-to-step correlation
inside a bin do not count.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

BINS = 30
EDGE = 5
"""A level must last at least this many bins."""
CRITICAL = 5.0
"""A t that chance exceeds less than once in a thousand steady windows (simulated in the tests: 30 normal bins)."""
SMALLEST_SHIFT = 0.05
"""A smaller relative change of level is not worth a doubt."""


@dataclass(frozen=True)
class LevelShift:
    """A change of the step time's level: at which share of the window, and from what to what (s)."""

    at: float
    before_seconds: float
    after_seconds: float


def level_shift(step_seconds: Sequence[float]) -> LevelShift | None:
    """Return the level shift of a window's step times; None where it was steady, or under two steps a bin."""
    if len(step_seconds) < 2 * BINS:
        return None
    levels = _bin_medians(step_seconds)
    split = max(range(EDGE, BINS - EDGE + 1), key=lambda split: _t(levels, split))
    if _t(levels, split) < CRITICAL:
        return None
    before, after = statistics.fmean(levels[:split]), statistics.fmean(levels[split:])
    if abs(after - before) < SMALLEST_SHIFT * min(before, after):
        return None
    return LevelShift(split / BINS, before, after)


def _bin_medians(values: Sequence[float]) -> list[float]:
    edges = [round(number * len(values) / BINS) for number in range(BINS + 1)]
    return [statistics.median(values[begin:end]) for begin, end in pairwise(edges)]


def _t(levels: Sequence[float], split: int) -> float:
    left, right = levels[:split], levels[split:]
    middle_left, middle_right = statistics.fmean(left), statistics.fmean(right)
    squares = sum((value - middle_left) ** 2 for value in left) + sum((value - middle_right) ** 2 for value in right)
    spread = math.sqrt(squares / (len(levels) - 2) * (1 / len(left) + 1 / len(right)))
    difference = abs(middle_left - middle_right)
    return difference / spread if spread > 0 else (math.inf if difference > 0 else 0.0)
