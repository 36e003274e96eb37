"""The host's clock, and its interface: a test has one that only goes on by what the simulation makes it do."""

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
