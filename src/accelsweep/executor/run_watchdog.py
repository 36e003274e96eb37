"""Monitor a run's ranks to the end: enforce time limits, detect stalled and dead ranks, send SIGTERM before SIGKILL."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Literal

from accelsweep.config.sweep_options import Limits
from accelsweep.devices import linux
from accelsweep.errors import DamagedFile
from accelsweep.executor.launch import Ranks, kill_leftovers
from accelsweep.executor.run_log import RunLog
from accelsweep.heartbeat import HeartbeatReader
from accelsweep.ipc import Signals
from accelsweep.records.run_files import read_rank_result
from accelsweep.worker.run_spec import RunSpec

_WATCHDOG_SECONDS = 10.0

_POLL_SECONDS = 1.0

_PEER_REPORT_SECONDS = 3.0
"""How long a dead rank's peers may still report errors."""

_TEARDOWN_SECONDS = 10.0
"""How long ranks may take to exit once all results are on disk."""

_GRACE_AFTER_DEATH_SECONDS = 5.0  # together with _PEER_REPORT_SECONDS, ends a group within 10 s of a rank's death

Cause = Literal["interrupted", "time_limit", "stalled", "rank_ended", "hung_teardown"]
"""Why the executor ended a run that did not end on its own."""


class Watchdog:
    """Detects ranks on this node that have not finished a step for too long.

    Heartbeats are memory-mapped files, so those of remote ranks are not visible here. A remote hang becomes visible at
    the next collective, where the local ranks stall too.
    """

    def __init__(self, spec: RunSpec, limit_seconds: float | None) -> None:
        """`limit_seconds` is the longest time without a step; None disables the watchdog."""
        self._heartbeats = {rank: HeartbeatReader(spec.heartbeat(rank)) for rank in range(spec.config.devices)}
        self._steps = dict.fromkeys(self._heartbeats, 0)
        self._stalled_seconds = dict.fromkeys(self._heartbeats, 0.0)
        self._limit = float("inf") if limit_seconds is None else limit_seconds
        self._interval = min(_WATCHDOG_SECONDS, self._limit / 10)
        self._checked_at: float | None = None

    def stalled(self, now: float) -> frozenset[int]:
        """Return the ranks that have been stalled for too long at `now` (monotonic seconds)."""
        if self._checked_at is None:
            self._checked_at = now
        elapsed = now - self._checked_at
        if elapsed < self._interval:
            return frozenset()
        self._checked_at = now
        elapsed = min(elapsed, self._interval + 2.0)  # the whole job may have been suspended
        for rank, heartbeat in self._heartbeats.items():
            steps = heartbeat.steps
            stalled = steps != 0 and steps == self._steps[rank]
            self._stalled_seconds[rank] = self._stalled_seconds[rank] + elapsed if stalled else 0.0
            self._steps[rank] = steps
        return frozenset(rank for rank, seconds in self._stalled_seconds.items() if seconds >= self._limit)


@dataclass(frozen=True)
class Ending:
    """How a run's processes ended.

    `exit_codes` is keyed by rank: negative for a signal, None for a rank that was lost with its node, which `lost`
    describes. `reported` contains the ranks whose results were on disk before we sent any signal; later results only
    reflect our signal. `signalled` contains the ranks that were alive at that time, `stalled` those that had not
    finished a step for too long. `stacks` means that the ranks' stacks are in the log.
    """

    exit_codes: tuple[int | None, ...]
    cause: Cause | None
    reported: frozenset[int]
    signalled: frozenset[int]
    ignored_sigterm: bool
    oom_kills: int
    wall_seconds: float
    lost: Mapping[int, str] = field(default_factory=dict)
    stalled: frozenset[int] = frozenset()
    stacks: bool = False


@dataclass
class Monitor:
    """Monitors the ranks of one run from their start. `tick` is called about once a second."""

    spec: RunSpec
    ranks: Ranks
    limits: Limits
    log: RunLog
    signals: Signals
    tick: Callable[[], None] = lambda: None

    def __post_init__(self) -> None:
        self._started = time.monotonic()
        self._cause: Cause | None = None
        self._signal_at = float("inf")
        self._signalled_at: float | None = None
        self._signalled: frozenset[int] = frozenset()
        self._reported: frozenset[int] = frozenset()
        self._killed = self._stacks = False
        self._watchdog = Watchdog(self.spec, self.limits.silence_seconds)
        self._stalled: frozenset[int] = frozenset()
        self._failures: dict[int, bool] = {}

    def wait(self, oom_kills_before: int, unrelated: frozenset[int]) -> Ending:
        """Wait for all ranks, ending them early if necessary, and kill any processes that they leave behind.

        `unrelated` are children of this process that do not belong to the run.
        """
        while not self.ranks.all_ended:
            self._check()
            self._sleep(self._poll_seconds())
            self.log.pump()
            self.ranks.poll()
            self.tick()
        wall_seconds = time.monotonic() - self._started
        kill_leftovers(unrelated)
        if self._signalled_at is None:
            # They ended on their own, or were signalled along with this process: Slurm signals the ranks before a
            # container passes the signal on.
            self._reported = self._with_result()
            self._cause = None if self.signals.stop is None else "interrupted"
        return Ending(
            exit_codes=tuple(self.ranks.exit_codes[rank] for rank in range(self.spec.world_size)),
            cause=self._cause,
            reported=self._reported,
            signalled=self._signalled,
            ignored_sigterm=self._killed,
            oom_kills=linux.oom_kills() - oom_kills_before + self.ranks.oom_kills,
            wall_seconds=wall_seconds,
            lost=self.ranks.lost,
            stalled=self._stalled,
            stacks=self._stacks,
        )

    def _check(self) -> None:
        now = time.monotonic()
        cause, delay = self._why_end(now)
        if cause is not None and now + delay < self._signal_at and self._signalled_at is None:
            self._cause, self._signal_at = cause, now + delay
        if self._signalled_at is None and now >= self._signal_at:
            self._reported = self._with_result()
            self._signalled = frozenset(range(self.spec.world_size)) - self.ranks.exit_codes.keys()
            if self._cause in ("time_limit", "stalled"):
                self._stacks = self.ranks.dump_stacks(self.log, self._sleep)
            self._signalled_at = time.monotonic()
            self.ranks.signal(signal.SIGTERM)
        elif self._signalled_at is not None and now >= self._signalled_at + self._grace():
            self._killed = True
            self.ranks.signal(signal.SIGKILL)

    def _why_end(self, now: float) -> tuple[Cause | None, float]:
        """Return why to end the run, and the number of seconds to wait before ending it."""
        if self.signals.stop is not None:
            return "interrupted", 0.0
        if self._cause == "rank_ended":
            return None, 0.0
        if now - self._started >= self.limits.run_seconds:
            return "time_limit", 0.0
        with_result = self._with_result()
        if self.ranks.exit_codes.keys() - with_result or any(self._failed(rank) for rank in with_result):
            return "rank_ended", _PEER_REPORT_SECONDS
        if self._cause is None and len(with_result) == self.spec.world_size:
            return "hung_teardown", _TEARDOWN_SECONDS
        if stalled := self._watchdog.stalled(now) - with_result:
            self._stalled = stalled
            return "stalled", 0.0
        return None, 0.0

    def _failed(self, rank: int) -> bool:
        if rank not in self._failures:
            try:
                self._failures[rank] = read_rank_result(self.spec.rank_result(rank)).reason is not None
            except DamagedFile:
                self._failures[rank] = True
        return self._failures[rank]

    def _with_result(self) -> frozenset[int]:
        return frozenset(rank for rank in range(self.spec.world_size) if self.spec.rank_result(rank).exists())

    def _grace(self) -> float:
        grace = self.limits.stop_grace_seconds
        return min(grace, _GRACE_AFTER_DEATH_SECONDS) if self._cause == "rank_ended" else grace

    def _poll_seconds(self) -> float:
        if self._cause is None:
            return min(_POLL_SECONDS, self._started + self.limits.run_seconds - time.monotonic())
        if self._signalled_at is None:
            return min(_POLL_SECONDS, self._signal_at - time.monotonic())
        return max(0.01, min(_POLL_SECONDS, self._signalled_at + self._grace() - time.monotonic()))

    def _sleep(self, seconds: float) -> None:
        self.signals.wait(seconds, [*self.log.descriptors(), *self.ranks.descriptors()])
