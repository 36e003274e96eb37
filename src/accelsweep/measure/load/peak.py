"""The highest load within a latency bound: a bisecting search over single tests, each judged by LoadGen.

LoadGen has a mode of its own for this (`FindPeakPerformance`). It doubles from a rate that must be valid, and bisects
to an absolute precision. Bisecting on the log scale, from a hint, takes a third of its tests, and the same judge. A
load is refused by two tests: one hiccup of the machine must not end the search far below the peak.
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
    refused: LoadTest | None
    tests: int


def find_peak(test: Callable[[float], LoadTest], capacity: float) -> Peak:
    """Return the highest load (queries per second) that `test` lets pass, within `PRECISION`.

    `capacity` is a hint: the rate of full batches. The search gives up below a 64th of it.
    """
    best: LoadTest | None = None
    refused: LoadTest | None = None
    tests, low, high = 0, 0.0, math.inf
    load = _FIRST * capacity
    while high / max(low, 1e-300) > PRECISION and load >= _FEWEST_SHARE * capacity:
        told, tests = test(load), tests + 1
        if told.invalid is not None:
            told, tests = test(load), tests + 1
        if told.invalid is None:
            best, low = told, load
        else:
            refused, high = told, load
        load = low * _STEP if math.isinf(high) else high / _STEP**2 if not low else math.sqrt(low * high)
    return Peak(best, refused, tests)
