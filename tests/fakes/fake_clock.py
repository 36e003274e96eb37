"""Fakes for timing: a clock that tests advance, a device with a queue, and ranks with given answers."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any


class FakeClock:
    """Advances only when a test says so."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now

    def advance(self, seconds: float) -> None:
        self.now += seconds


class FakeDevice:
    """An asynchronous device: work is queued at once and done only when somebody waits, or as time passes."""

    def __init__(self, clock: FakeClock, log: list[str]) -> None:
        self._clock, self._log = clock, log
        self._free_at = 0.0

    def work(self, seconds: float) -> None:
        self._free_at = max(self._free_at, self._clock.now) + seconds

    def synchronise(self) -> None:
        self._log.append("synchronise")
        self._clock.now = max(self._clock.now, self._free_at)

    asynchronous = True

    def marks(self, clock: Any) -> _QueueMarks:
        return _QueueMarks(self, self._clock)


class _QueueMarks:
    def __init__(self, device: FakeDevice, clock: FakeClock) -> None:
        self._device, self._clock = device, clock
        self._times: list[float] = []
        self.add()

    def add(self) -> None:
        self._times.append(max(self._device._free_at, self._clock.now))

    def reached(self) -> int:
        return sum(time <= self._clock.now for time in self._times)

    def seconds(self) -> list[float]:
        return [later - earlier for earlier, later in zip(self._times, self._times[1:], strict=False)]


@dataclass
class FakeGroup:
    """Rank `rank` of `size`; rank 0 says `told` if it is not this one."""

    log: list[str]
    rank: int = 0
    size: int = 1
    told: int | None = None
    asked: list[int] = field(default_factory=list)

    def barrier(self) -> None:
        self.log.append("barrier")

    def broadcast(self, value: int) -> int:
        self.asked.append(value)
        return value if self.told is None else self.told

    def gather(self, value: Any) -> list[Any]:
        return [value] * self.size
