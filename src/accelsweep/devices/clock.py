"""The arguments of a measurement: a clock, a device to wait for, marks between steps.

They are arguments everywhere, so that every rule of the window is tested exactly with a clock that a test moves by
hand. Nothing here imports torch.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from itertools import pairwise
from typing import Protocol

Clock = Callable[[], float]
"""Seconds since an arbitrary moment, never running backwards."""


def monotonic() -> float:
    """Return the time on the clock of every duration (CLOCK_MONOTONIC on Linux), in seconds.

    Wall-clock time may jump and is never used for a duration.
    """
    return time.perf_counter()


def all_clocks() -> dict[str, float]:
    """Return the time of day, and the clocks without and with the time that the machine slept; the last on Linux."""
    boot = getattr(time, "CLOCK_BOOTTIME", None)
    with_sleep = {} if boot is None else {"boot_time": time.clock_gettime(boot)}
    return {"wall": time.time(), "monotonic": time.monotonic(), **with_sleep}


def clock_gap(passed: Mapping[str, float]) -> float:
    """Return the seconds that durations do not hold: the machine slept or was paused, or its clock was set ahead.

    `passed` are the seconds that passed on each clock. A clock that was set back is no gap.
    """
    return max(passed["wall"], passed.get("boot_time", 0.0), passed["monotonic"]) - passed["monotonic"]


class Marks(Protocol):
    """Boundaries between steps, taken without waiting for the device and turned into seconds once, afterwards."""

    def add(self) -> None:
        """Mark the end of a step. The first mark is set when the object is made."""

    def reached(self) -> int:
        """Return how many marks the device has reached by now. Waits for nothing."""

    def seconds(self) -> list[float]:
        """Return the seconds between neighbouring marks. The device must have been synchronised."""


class WaitedDevice(Protocol):
    """A device as the window uses it. An `asynchronous` device works on while the host goes ahead."""

    asynchronous: bool

    def synchronise(self) -> None:
        """Wait until all work that was handed to the device is done."""

    def marks(self, clock: Clock) -> Marks:
        """Begin a series of marks with the first one."""


class ClockMarks:
    """Marks read from the host's clock: exact on a CPU, where a step is done when its call returns."""

    def __init__(self, clock: Clock) -> None:
        """`clock` is read once now and once for each mark."""
        self._clock = clock
        self._times = [clock()]

    def add(self) -> None:
        """Mark the end of a step."""
        self._times.append(self._clock())

    def reached(self) -> int:
        """Return how many marks there are: a host is never behind itself."""
        return len(self._times)

    def seconds(self) -> list[float]:
        """Return the seconds between neighbouring marks."""
        return [later - earlier for earlier, later in pairwise(self._times)]
