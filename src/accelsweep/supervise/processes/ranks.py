"""The processes of a run's ranks, as whoever watches them sees them, and those that they leave behind."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

import psutil

from accelsweep.supervise.processes.logs import RunLog
from accelsweep.supervise.processes.stacks import write_stacks


class Ranks(Protocol):
    """The processes of a run's ranks, on one node or several."""

    statuses: dict[int, int | None]
    """The exit code of each ended rank, negative for the signal that ended it, None if it was lost."""

    lost: dict[int, str]
    """The place of each lost rank, in words."""

    oom_kills: int
    """Kills for lack of memory on other nodes, which only the processes there could count."""

    @property
    def gone(self) -> bool:
        """Whether no process of the run is left to wait for."""

    def look(self) -> None:
        """Bring `statuses` up to date, without waiting."""

    def signal(self, number: signal.Signals) -> None:
        """Send SIGTERM or SIGKILL to all ranks that are left."""

    def write_stacks(self, log: RunLog, wait: Callable[[float], None]) -> bool:
        """Write the stacks of all ranks that are left into `log`; return whether there are any. `wait` sleeps."""


@dataclass
class LocalRanks:
    """The ranks whose processes are children of this one, the leader of their group first.

    `first` is the first one's rank.
    """

    processes: list[int]
    first: int = 0
    statuses: dict[int, int | None] = field(default_factory=dict)
    lost: dict[int, str] = field(default_factory=dict)
    oom_kills: int = 0

    @property
    def gone(self) -> bool:
        """Whether all have been reaped."""
        return len(self.statuses) == len(self.processes)

    def living(self) -> dict[int, int]:
        """Return the process ids of those that have not been reaped, by rank."""
        numbered = enumerate(self.processes, self.first)
        return {rank: pid for rank, pid in numbered if rank not in self.statuses}

    def look(self) -> None:
        """Reap those that have ended."""
        for rank, pid in self.living().items():
            process, status = os.waitpid(pid, os.WNOHANG)
            if process:
                self.statuses[rank] = os.waitstatus_to_exitcode(status)

    def signal(self, number: signal.Signals) -> None:
        """Signal the whole group. While one rank is not reaped yet, its number cannot belong to another process."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.processes[0], number)

    def write_stacks(self, log: RunLog, wait: Callable[[float], None]) -> bool:
        """Ask one after another."""
        return write_stacks(self.living(), log, wait)


def children() -> frozenset[int]:
    """Return the process ids of this process's children."""
    return frozenset(child.pid for child in psutil.Process().children())


def end_leftovers(strangers: frozenset[int]) -> None:
    """Kill and reap the processes that the ranks left behind (data loading workers, daemons), which we adopted."""
    while left := [child for child in psutil.Process().children(recursive=True) if _ours(child, strangers)]:
        for process in left:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()
        for pid in children() - strangers:
            with contextlib.suppress(ChildProcessError):
                os.waitpid(pid, 0)


def _ours(process: psutil.Process, strangers: frozenset[int]) -> bool:
    with contextlib.suppress(psutil.NoSuchProcess):
        return not ({process.pid, *(parent.pid for parent in process.parents())} & strangers)
    return False
