"""Interfaces that a measurement takes as arguments: a clock, a device to synchronise, and marks between steps.

Because they are arguments, tests can pass a simulated clock and check every rule of the measurement window exactly.
This module does not import torch.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from itertools import pairwise
from typing import Protocol

Clock = Callable[[], float]
"""Monotonic seconds since an arbitrary point in time."""


def monotonic() -> float:
    """Return the monotonic time in seconds (CLOCK_MONOTONIC on Linux), used for all durations."""
    return time.perf_counter()


def all_clocks() -> dict[str, float]:
    """Return wall-clock time, monotonic time and, on Linux, boot time, which includes suspend; all in seconds."""
    boot = getattr(time, "CLOCK_BOOTTIME", None)
    boot_time = {} if boot is None else {"boot_time": time.clock_gettime(boot)}
    return {"wall": time.time(), "monotonic": time.monotonic(), **boot_time}


def clock_gap(passed: Mapping[str, float]) -> float:
    """Return the seconds that the monotonic clock missed because of suspend, a paused VM or a wall clock set forward.

    `passed` maps each clock of `all_clocks` to the time that elapsed on it, in seconds. Setting the wall clock back is
    not considered a gap.
    """
    return max(passed["wall"], passed.get("boot_time", 0.0), passed["monotonic"]) - passed["monotonic"]


class Marks(Protocol):
    """Step boundaries, which are recorded without waiting for the device and only converted to seconds at the end."""

    def add(self) -> None:
        """Mark the end of a step. The first mark is recorded on construction."""

    def reached(self) -> int:
        """Return how many marks the device has passed so far. Does not block."""

    def seconds(self) -> list[float]:
        """Return the seconds between consecutive marks. The device must have been synchronised."""


class TimedDevice(Protocol):
    """A device as used by the measurement window. An `asynchronous` device may lag behind the host."""

    asynchronous: bool

    def synchronise(self) -> None:
        """Wait until the device has completed all queued work."""

    def marks(self, clock: Clock) -> Marks:
        """Start a series of marks and record the first one."""


class ClockMarks:
    """Marks read from the host's clock. They are exact on a CPU, where a step is complete when its call returns."""

    def __init__(self, clock: Clock) -> None:
        """Read `clock` for the first mark."""
        self._clock = clock
        self._times = [clock()]

    def add(self) -> None:
        """Mark the end of a step."""
        self._times.append(self._clock())

    def reached(self) -> int:
        """Return the total number of marks, because the host never lags behind itself."""
        return len(self._times)

    def seconds(self) -> list[float]:
        """Return the seconds between consecutive marks."""
        return [later - earlier for earlier, later in pairwise(self._times)]
