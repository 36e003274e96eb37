"""The highest load within a latency bound: a bisecting search over single tests, each judged by LoadGen.

LoadGen has a mode of its own for this (`FindPeakPerformance`). It doubles from a rate that must be valid, and bisects
to an absolute precision. Bisecting on the log scale, from a hint, takes a third of its tests, and the same judge. The
load at which the search would end is asked twice: a hiccup of the machine must not end it far below the peak. One is
forgiven, because near the peak chance decides, and a search that forgives everything never ends.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from accelsweep.measure.load.loadgen import LoadTest

PRECISION = 1.04
"""The search ends where the lowest load that failed is at most so many times the highest one that passed."""

_FIRST = 0.7
"""The first load, as a share of the rate of full batches, which no load can exceed for long."""

_STEP = 1.5
_FEWEST_SHARE = 1 / 64


@dataclass(frozen=True)
class Peak:
    """The search's result: the valid test with the highest load, or None, and the last one that was not valid."""

    best: LoadTest | None
    refused: LoadTest
    tests: int


def find_peak(test: Callable[[float], LoadTest], capacity: float) -> Peak:
    """Return the highest load (queries per second) that `test` lets pass, within `PRECISION`.

    `capacity` is a hint: the rate of full batches. The search gives up below a 64th of it.
    """
    best: LoadTest | None = None
    refusals: list[LoadTest] = []
    tests, low, load, forgiven = 0, 0.0, _FIRST * capacity, False
    while True:
        high = refusals[-1].load.per_second if refusals else math.inf
        ends = load < _FEWEST_SHARE * capacity or (low > 0 and high / low <= PRECISION)
        if ends and forgiven:
            return Peak(best, refusals[-1], tests)
        told, tests = test(high if ends else load), tests + 1
        if told.invalid is None:
            best, low = told, told.load.per_second
        elif ends:
            return Peak(best, told, tests)
        else:
            refusals.append(told)
        if ends:  # the second look at this load: the first was a hiccup, and loads above may pass too
            refusals, forgiven = refusals[:-1], True
        load = _next(low, refusals[-1].load.per_second if refusals else math.inf)


def _next(low: float, high: float) -> float:
    if math.isinf(high):
        return low * _STEP
    return math.sqrt(low * high) if low else high / _STEP**2
