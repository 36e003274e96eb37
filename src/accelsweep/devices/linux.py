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
from dataclasses import dataclass
from itertools import islice
from pathlib import Path, PurePosixPath

# The control groups of this process: their folders, and the processor time and the memory that they grant.

ROOT = Path("/sys/fs/cgroup")
"""The mount point of the hierarchies."""

MEMBERSHIP = Path("/proc/self/cgroup")
"""The list in Linux of the groups of this process."""


@dataclass(frozen=True)
class ControlGroup:
    """A group of this process: `controllers` names those of a version 1 hierarchy; version 2 has none here."""

    controllers: tuple[str, ...]
    path: PurePosixPath

    def folders(self, mount: Path) -> Iterator[Path]:
        """Yield the folders of the group and of all groups around it, up to the `mount` of its hierarchy.

        Inside a container Linux may name a path of the host's; then only the mount itself exists. A path with `..`
        lies outside the mount.
        """
        inner = PurePosixPath("/") if ".." in self.path.parts else self.path
        for part in (inner, *inner.parents):
            yield mount / part.relative_to("/")


def groups() -> list[ControlGroup]:
    """Return the groups of this process; an empty list where the system has none."""
    try:
        rows = [line.split(":", 2) for line in MEMBERSHIP.read_text().splitlines()]
    except OSError:
        return []
    return [
        ControlGroup(tuple(controllers.split(",")) if controllers else (), PurePosixPath(path))
        for _, controllers, path in (row for row in rows if len(row) == 3)
        if path.startswith("/")
    ]


def folders_of(controller: str) -> Iterator[Path]:
    """Yield the folders of this process's groups that `controller` governs; of nested ones, the inner first."""
    for group in groups():
        if not group.controllers:
            yield from group.folders(ROOT)
        elif controller in group.controllers:
            for mounted in dict.fromkeys((",".join(group.controllers), controller)):
                yield from group.folders(ROOT / mounted)


def cpu_quota() -> float | None:
    """Return the processor time that this process's groups grant, in cores; None where nothing bounds it.

    Groups nest, and each bounds those within it: the smallest counts.
    """
    return min((quota for folder in folders_of("cpu") if (quota := _quota(folder)) is not None), default=None)


def _quota(folder: Path) -> float | None:
    """Return the cores that the group in `folder` grants by itself, in either version; None for no bound."""
    try:
        quota, period = (folder / "cpu.max").read_text().split()
    except (OSError, ValueError):
        try:
            quota = (folder / "cpu.cfs_quota_us").read_text().strip()
            period = (folder / "cpu.cfs_period_us").read_text().strip()
        except OSError:
            return None
    if not (quota.isdigit() and period.isdigit()) or int(period) == 0:
        return None  # `max` in version 2, -1 in version 1
    return int(quota) / int(period)


_LIMITS = (
    ("memory.max", "memory.current", "inactive_file"),
    ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"),
)
"""The files with limit and use, and the part of the use that Linux takes back by itself: version 2, version 1."""

_UNLIMITED = 2**60
"""Version 1 has no word for "no limit": it states a number of this size."""


def memory_limit() -> int | None:
    """Return the bytes that this process's groups may have in all; None where nothing bounds them."""
    files = (folder / limit for folder in folders_of("memory") for limit, _, _ in _LIMITS)
    return min((most for file in files if (most := _bound(file)) is not None), default=None)


def memory_room() -> int | None:
    """Return the bytes that this process's groups still grant; None where nothing bounds them. The smallest counts."""
    return min((room for folder in folders_of("memory") if (room := _room(folder)) is not None), default=None)


def _room(folder: Path) -> int | None:
    """Return the bytes that the group in `folder` still grants by itself, in either version; None for no bound."""
    for limit, use, reclaimed in _LIMITS:
        if (most := _bound(folder / limit)) is None:
            continue
        try:
            parts = dict(line.split() for line in (folder / "memory.stat").read_text().splitlines())
            return max(0, most - int((folder / use).read_text()) + int(parts.get(reclaimed, 0)))
        except (OSError, ValueError):
            continue
    return None


def _bound(file: Path) -> int | None:
    """Return the bytes that a file of a limit states; None without one, or without a limit in it."""
    try:
        most = file.read_text().strip()
    except OSError:
        return None
    return int(most) if most.isdigit() and int(most) < _UNLIMITED else None


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
    files = (folder / name for folder in folders_of("memory") for name in names)
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


# The cores that this process may use.


def allowed_cores() -> set[int]:
    """Return the numbers of the logical cores that this process may run on: its affinity, or all where there is none.

    Other processes on these cores take time from us. `usable_cores` returns how much of them we may use.
    """
    if hasattr(os, "sched_getaffinity"):
        return os.sched_getaffinity(0)
    return set(range(os.cpu_count() or 1))


def usable_cores() -> int:
    """Return how many cores' worth of time this process may use: by affinity and by quota, rounded down, at least 1."""
    allowed, quota = len(allowed_cores()), cpu_quota()
    return allowed if quota is None else max(1, min(allowed, int(quota)))
