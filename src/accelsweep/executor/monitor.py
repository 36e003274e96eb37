"""From the start of a run's processes to the death of the last one: time limits, dead ranks, politeness, then force."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Literal

from accelsweep.config.sweep_options import Limits
from accelsweep.devices import linux
from accelsweep.errors import DamagedFile
from accelsweep.executor.ipc import Signals
from accelsweep.executor.processes import Ranks, RunLog, end_leftovers
from accelsweep.records.sweep_progress import Heard
from accelsweep.worker.run_spec import RankResult, RunSpec

# Ranks without a step: how long each has been silent, told from the signs of life in its `records.sweep_progress`.

_WATCHDOG_LOOK_SECONDS = 10.0


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
        self._interval = min(_WATCHDOG_LOOK_SECONDS, self._limit / 10)
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


Cause = Literal["interrupted", "time_limit", "silence", "rank_ended", "lingering"]
"""The reason why the supervisor ended a run that did not end by itself."""

REPORT_SECONDS = 3.0
"""The time in which the peers of a rank that ended early may still report their own view."""

LINGER_SECONDS = 10.0
"""The time within which ranks exit after all results are on disk."""

_GRACE_AFTER_DEATH_SECONDS = 5.0  # with REPORT_SECONDS: a group whose rank died is gone within 10 s

_LOOK_SECONDS = 1.0


@dataclass(frozen=True)
class Ending:
    """The ending of a run's processes.

    `statuses` are exit codes by rank, negative for the signal that ended one, None for a rank that was `lost` with its
    node. `reported` are the ranks whose results stood before we sent any signal (later ones describe our signal).
    `signalled` are those that were alive when we sent it. `lost` says where a rank without a status was. `silent` are
    those that had been without a step for too long. `stacks` says whether the log has the stacks of the ranks.
    """

    statuses: tuple[int | None, ...]
    cause: Cause | None
    reported: frozenset[int]
    signalled: frozenset[int]
    ignored_sigterm: bool
    oom_kills: int
    wall_seconds: float
    lost: Mapping[int, str] = field(default_factory=dict)
    silent: frozenset[int] = frozenset()
    stacks: bool = False


@dataclass
class Watch:
    """The ranks of one run, from their start on. `tick` is called about once a second while they run."""

    spec: RunSpec
    ranks: Ranks
    limits: Limits
    log: RunLog
    signals: Signals
    tick: Callable[[], None] = lambda: None
    clock: Callable[[], float] = time.monotonic

    def until_the_end(self, oom_kills_before: int, strangers: frozenset[int]) -> Ending:
        """Wait for all ranks, end them where the rules say so, and end the processes that they leave behind.

        `strangers` are children of this process that do not belong to the run.
        """
        self._begin()
        while not self.ranks.gone:
            self._decide()
            self._wait(self._next_look())
            self.log.pump()
            self.ranks.look()
            self.tick()
        wall_seconds = self.clock() - self._started
        end_leftovers(strangers)
        reported = self._reported if self._signalled_at is not None else self._results()
        return Ending(
            statuses=tuple(self.ranks.statuses[rank] for rank in range(self.spec.world_size)),
            cause=self._cause if self._signalled_at is not None else self._unasked(),
            reported=reported,
            signalled=self._signalled,
            ignored_sigterm=self._killed,
            oom_kills=linux.oom_kills() - oom_kills_before + self.ranks.oom_kills,
            wall_seconds=wall_seconds,
            lost=self.ranks.lost,
            silent=self._silent,
            stacks=self._stacks,
        )

    def _unasked(self) -> Cause | None:
        """Return why all ranks ended before we asked them to: whoever stops us may have stopped them sooner."""
        return None if self.signals.stop is None else "interrupted"

    def _begin(self) -> None:
        self._started = self.clock()
        self._cause: Cause | None = None
        self._signal_at = float("inf")
        self._signalled_at: float | None = None
        self._signalled: frozenset[int] = frozenset()
        self._reported: frozenset[int] = frozenset()
        self._killed = self._stacks = False
        self._silence = Silence(self.spec, self.limits.silence_seconds)
        self._silent: frozenset[int] = frozenset()
        self._failures: dict[int, bool] = {}

    def _decide(self) -> None:
        now = self.clock()
        cause, patience = self._why_end(now)
        if cause is not None and now + patience < self._signal_at and self._signalled_at is None:
            self._cause, self._signal_at = cause, now + patience
        if self._signalled_at is None and now >= self._signal_at:
            self._reported = self._results()
            self._signalled = self._alive()
            if self._cause in ("time_limit", "silence"):
                self._stacks = self.ranks.write_stacks(self.log, self._wait)
            self._signalled_at = self.clock()
            self.ranks.signal(signal.SIGTERM)
        elif self._signalled_at is not None and now >= self._signalled_at + self._grace():
            self._killed = True
            self.ranks.signal(signal.SIGKILL)

    def _why_end(self, now: float) -> tuple[Cause | None, float]:
        if self.signals.stop is not None:
            return "interrupted", 0.0
        if self._cause == "rank_ended":
            return None, 0.0
        if now - self._started >= self.limits.run_seconds:
            return "time_limit", 0.0
        reported = self._results()
        if self.ranks.statuses.keys() - reported or any(self._failed(rank) for rank in reported):
            return "rank_ended", REPORT_SECONDS
        if self._cause is None and len(reported) == self.spec.world_size:
            return "lingering", LINGER_SECONDS
        if silent := self._silence.broken_by(now) - reported:
            self._silent = silent
            return "silence", 0.0
        return None, 0.0

    def _wait(self, seconds: float) -> None:
        self.signals.wait(seconds, self.log.descriptors())

    def _failed(self, rank: int) -> bool:
        if rank not in self._failures:
            try:
                self._failures[rank] = RankResult.read(self.spec.rank_result(rank)).reason is not None
            except DamagedFile:
                self._failures[rank] = True
        return self._failures[rank]

    def _grace(self) -> float:
        grace = self.limits.stop_grace_seconds
        return min(grace, _GRACE_AFTER_DEATH_SECONDS) if self._cause == "rank_ended" else grace

    def _next_look(self) -> float:
        if self._cause is None:
            return min(_LOOK_SECONDS, self._started + self.limits.run_seconds - self.clock())
        if self._signalled_at is None:
            return min(_LOOK_SECONDS, self._signal_at - self.clock())
        return max(0.01, min(_LOOK_SECONDS, self._signalled_at + self._grace() - self.clock()))

    def _alive(self) -> frozenset[int]:
        return frozenset(range(self.spec.world_size)) - self.ranks.statuses.keys()

    def _results(self) -> frozenset[int]:
        return frozenset(rank for rank in range(self.spec.world_size) if self.spec.rank_result(rank).exists())
