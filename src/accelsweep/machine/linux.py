"""Calls to Linux for the supervisor: children that die with it, orphans that it adopts, evidence of OOM kills.

Where the system lacks a feature (macOS has none of them), its function does nothing. Each docstring states the loss.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import resource
import signal
import sys
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

from accelsweep.machine import cgroup

_LEAST_LIMITS = (
    (resource.RLIMIT_AS, 128 * 2**30, 1024, "the virtual memory of a process to {} KiB", "v"),
    (resource.RLIMIT_NOFILE, 256, 1, "the open files of a process to {}", "n"),
    (resource.RLIMIT_FSIZE, 64 * 2**20, 1024, "the size of a file to {} KiB", "f"),
)
"""What a process needs at least: the limit, its value, the unit of the shell's `ulimit`, words, and ulimit's letter.

Torch reserves some GiB of addresses. V8, which draws the report's figures, reserves 64 GiB for each of its two heaps.
"""

_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36
_FIRST_TO_BE_KILLED = (
    1000  # the highest oom_score_adj: when memory runs out, a run is killed before the user's other processes
)


def die_with_parent(parent: int, number: signal.Signals = signal.SIGKILL) -> None:
    """Have this process get signal `number` when `parent`, which forked it, dies; end now if that has happened already.

    Without the feature a run outlives a killed supervisor and keeps its lease until it ends by itself.
    """
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, number)
        if os.getppid() != parent:
            os._exit(1)


def adopt_orphans() -> None:
    """Become the parent of processes that a run leaves behind, so that they can be found and ended with it."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1)


def volunteer_for_oom_kill() -> None:
    """Make this process the first choice of Linux when memory runs out, so that the supervisor survives it."""
    with contextlib.suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text(str(_FIRST_TO_BE_KILLED))


def handles(pid: int, number: signal.Signals) -> bool | None:
    """Return whether process `pid` has a handler for signal `number`; None where that cannot be read."""
    with contextlib.suppress(OSError):
        for line in Path(f"/proc/{pid}/status").read_text().splitlines():
            if line.startswith("SigCgt:"):
                return bool(int(line.split()[1], 16) >> (number - 1) & 1)
    return None


def oom_kills() -> int:
    """Return how many processes Linux has killed for lack of memory, on this host and in our own control group.

    Only a rise means something. 0 where nothing can be read: a killed run is then `crashed` by SIGKILL.
    """
    return sum(int(count) for path in _oom_counters() for count in _counts(path))


def _oom_counters() -> Iterator[Path]:
    """Yield the host's counter, and that of the innermost of our groups which has one, in either version."""
    yield Path("/proc/vmstat")
    names = ("memory.events", "memory.oom_control")
    files = (folder / name for folder in cgroup.folders_of("memory") for name in names)
    yield from islice(filter(Path.is_file, files), 1)


def _counts(path: Path) -> list[str]:
    with contextlib.suppress(OSError):
        rows = (line.split() for line in path.read_text().splitlines())
        return [row[1] for row in rows if len(row) == 2 and row[0] == "oom_kill"]
    return []


def narrow_limits() -> Iterator[str]:
    """Yield what limits of this shell (`ulimit`) keep a sweep from running, each with the command that lifts it."""
    for limit, least, unit, what, option in _LEAST_LIMITS:
        soft, hard = resource.getrlimit(limit)
        if soft != resource.RLIM_INFINITY and soft < least:
            more = "unlimited" if hard == resource.RLIM_INFINITY else str(max(hard, least) // unit)
            lifted = hard == resource.RLIM_INFINITY or hard >= least
            remedy = (
                f"ulimit -S{option} {more}"
                if lifted
                else f"start it in a shell with a higher hard limit (ulimit -H{option})"
            )
            found = f"this shell limits {what.format(soft // unit)} (ulimit -{option})"
            yield f"{found}, and a sweep needs {least // unit}: {remedy}"


def thread_names() -> list[str]:
    """Return the names of this process's threads; an empty list where they cannot be read."""
    with contextlib.suppress(OSError):
        return sorted((task / "comm").read_text().strip() for task in Path("/proc/self/task").iterdir())
    return []
