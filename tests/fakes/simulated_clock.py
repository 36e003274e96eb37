"""A clock of the host that only goes on by what a simulated device makes it do."""

from __future__ import annotations


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
