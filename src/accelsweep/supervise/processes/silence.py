"""Ranks without a step: how long each has been silent, told from the signs of life that it writes (`state.pulse`).

Only time in which this process could look counts. A machine that slept, or a job that was suspended, silences nobody.
"""

from __future__ import annotations

from dataclasses import dataclass

from accelsweep.rank.spec import RunSpec
from accelsweep.state.pulse import Heard

_LOOK_SECONDS = 10.0


@dataclass
class _Ear:
    """The last news of one rank: its steps at the last look, and the seconds since they changed."""

    pulse: Heard
    steps: int = 0
    silent_seconds: float = 0.0

    def listen(self, seconds: float) -> None:
        steps = self.pulse.steps
        self.silent_seconds = self.silent_seconds + seconds if steps and steps == self.steps else 0.0
        self.steps = steps


class Silence:
    """The ranks on this node. Files that another node maps into its memory show nothing here.

    Where one of the others hangs, the next exchange silences these.
    """

    def __init__(self, spec: RunSpec, limit_seconds: float | None) -> None:
        """A rank may be without a step for `limit_seconds`; None lets all be."""
        self._ears = {rank: _Ear(Heard(spec.pulse(rank))) for rank in range(spec.config.devices)}
        self._limit = float("inf") if limit_seconds is None else limit_seconds
        self._interval = min(_LOOK_SECONDS, self._limit / 10)
        self._looked_at: float | None = None

    def broken_by(self, now: float) -> frozenset[int]:
        """Return the ranks that have been silent for too long at `now` (monotonic seconds)."""
        if self._looked_at is None:
            self._looked_at = now
        passed = now - self._looked_at
        if passed < self._interval:
            return frozenset()
        self._looked_at = now
        for ear in self._ears.values():
            ear.listen(min(passed, self._interval + 2.0))
        return frozenset(rank for rank, ear in self._ears.items() if ear.silent_seconds >= self._limit)
