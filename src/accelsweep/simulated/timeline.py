"""The device's own time: one queue, in which operations follow one another and take what they are told to."""

from __future__ import annotations

from accelsweep.machine.drivers.simulated import Spec, Use


class Timeline:
    """The moment at which the device is free again, and its work until then."""

    def __init__(self, spec: Spec, use: Use) -> None:
        """`use` is kept up to date as the device works."""
        self._spec, self._use = spec, use
        self._stalls = sorted(spec.stalls)
        self.free_at = 0.0

    def work(self, launched: float, seconds: float, finished: float = 0.0) -> None:
        """Append an operation that was launched at that moment.

        It begins once the device is free. It takes `seconds`, longer where the device stalls or is throttled, and it
        ends no sooner than `finished`, when its result was really there.
        """
        begin, stall = max(self.free_at, launched), self._stall()
        seconds *= self._spec.wear
        if self._throttled():
            seconds *= self._spec.throttle
            self._use.held_back += seconds
        self.free_at = max(begin + stall + seconds, finished)
        self._use.busy += self.free_at - begin - stall
        self._use.free_at = self.free_at

    def _throttled(self) -> bool:
        after = self._spec.throttled_after
        return after is not None and self._use.busy >= after

    def _stall(self) -> float:
        seconds = 0.0
        while self._stalls and self._use.busy >= self._stalls[0][0]:
            seconds += self._stalls.pop(0)[1]
        return seconds
