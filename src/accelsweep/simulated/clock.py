"""Two clocks of the host: the real one, and one that only goes on by what the simulation makes it do."""

from __future__ import annotations

import time
from typing import Protocol


class HostClock(Protocol):
    """The host's time in seconds."""

    simulated: bool

    def now(self) -> float:
        """Return the time."""

    def spend(self, seconds: float) -> None:
        """Let the host work for so long."""

    def wait_until(self, moment: float) -> None:
        """Let the host wait until then."""


class RealClock:
    """The monotonic clock. The host's work takes its real time."""

    simulated = False

    def now(self) -> float:
        """Return the clock's reading."""
        return time.perf_counter()

    def spend(self, seconds: float) -> None:
        """Do nothing: the host has spent its time already."""

    def wait_until(self, moment: float) -> None:
        """Sleep."""
        while (left := moment - time.perf_counter()) > 0:
            time.sleep(left)


class SimulatedClock:
    """A clock that goes on by `look_seconds` at each look, by what is spent, and by waiting: alike on every machine.

    In a test it takes the place of `time.perf_counter`.
    """

    simulated = True

    def __init__(self, look_seconds: float = 1e-6) -> None:
        """Begin at a moment that is no round number."""
        self._now, self._look = 1000.0, look_seconds

    def __call__(self) -> float:
        """Return the time, as somebody looks at it."""
        self._now += self._look
        return self._now

    def now(self) -> float:
        """Return the time without a look's cost."""
        return self._now

    def spend(self, seconds: float) -> None:
        """Go on."""
        self._now += seconds

    def wait_until(self, moment: float) -> None:
        """Go on to that moment, or stay if it is over."""
        self._now = max(self._now, moment)
