"""Linux interfaces: control groups, process death and orphan handling, OOM kills, resource limits, CPU affinity.

macOS provides few of them. Functions that have no equivalent there do nothing or return a neutral value; their
docstrings explain the consequences.
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

# Control groups of this process, versions 1 and 2.

CGROUP_ROOT = Path("/sys/fs/cgroup")
"""The mount point of the control group hierarchies."""

CGROUP_MEMBERSHIP = Path("/proc/self/cgroup")
"""The file that lists the groups of this process."""


@dataclass(frozen=True)
class ControlGroup:
    """A control group of this process. In version 2, `controllers` is empty."""

    controllers: tuple[str, ...]
    path: PurePosixPath

    def folders(self, mount: Path) -> Iterator[Path]:
        """Yield the folder of the group, then those of its ancestors up to the `mount` of its hierarchy.

        In a container, the path may be that of the host, in which case only the mount itself exists. A path that
        contains `..` is outside the mount.
        """
        inner = PurePosixPath("/") if ".." in self.path.parts else self.path
        for part in (inner, *inner.parents):
            yield mount / part.relative_to("/")


def control_groups() -> list[ControlGroup]:
    """Return the groups of this process; an empty list if the system does not support control groups."""
    try:
        rows = [line.split(":", 2) for line in CGROUP_MEMBERSHIP.read_text().splitlines()]
    except OSError:
        return []
    return [
        ControlGroup(tuple(controllers.split(",")) if controllers else (), PurePosixPath(path))
        for _, controllers, path in (row for row in rows if len(row) == 3)
        if path.startswith("/")
    ]


def cgroup_folders(controller: str) -> Iterator[Path]:
    """Yield the folders of this process's groups that use `controller`, innermost first."""
    for group in control_groups():
        if not group.controllers:
            yield from group.folders(CGROUP_ROOT)
        elif controller in group.controllers:
            for mounted in dict.fromkeys((",".join(group.controllers), controller)):
                yield from group.folders(CGROUP_ROOT / mounted)


def cpu_quota() -> float | None:
    """Return the CPU quota of this process in cores; None if unlimited.

    If groups are nested, the tightest limit applies.
    """
    return min((quota for folder in cgroup_folders("cpu") if (quota := _quota(folder)) is not None), default=None)


def _quota(folder: Path) -> float | None:
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


_MEMORY_FILES = (
    ("memory.max", "memory.current", "inactive_file"),
    ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"),
)
"""For version 2, then version 1: the files with the limit and the usage, and the reclaimable part of the usage."""

_UNLIMITED = 2**60
"""Version 1 represents "no limit" as a number of this magnitude."""


def cgroup_memory_limit() -> int | None:
    """Return the memory limit of this process's groups in bytes; None if unlimited. The tightest limit applies."""
    files = (folder / limit for folder in cgroup_folders("memory") for limit, _, _ in _MEMORY_FILES)
    return min((limit for file in files if (limit := _limit(file)) is not None), default=None)


def cgroup_free_memory() -> int | None:
    """Return the bytes that this process's groups may still use; None if unlimited. The tightest limit applies."""
    return min((free for folder in cgroup_folders("memory") if (free := _free(folder)) is not None), default=None)


def _free(folder: Path) -> int | None:
    for limit_file, usage_file, reclaimable in _MEMORY_FILES:
        if (limit := _limit(folder / limit_file)) is None:
            continue
        try:
            stat = dict(line.split() for line in (folder / "memory.stat").read_text().splitlines())
            return max(0, limit - int((folder / usage_file).read_text()) + int(stat.get(reclaimable, 0)))
        except (OSError, ValueError):
            continue
    return None


def _limit(file: Path) -> int | None:
    try:
        text = file.read_text().strip()
    except OSError:
        return None
    return int(text) if text.isdigit() and int(text) < _UNLIMITED else None


# Processes.

_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36
_OOM_SCORE_ADJ_MAX = 1000


def die_with_parent(parent: int, number: signal.Signals = signal.SIGKILL) -> None:
    """Have signal `number` sent to this process when `parent`, which forked it, dies; exit now if it is already dead.

    On systems other than Linux, a run outlives a killed executor and holds its lease until it ends.
    """
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, number)
        if os.getppid() != parent:
            os._exit(1)


def adopt_orphans() -> None:
    """Become the subreaper of all descendants, so that processes left behind by a run can be found and killed."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1)


def volunteer_for_oom_kill() -> None:
    """Raise this process's OOM score, so that Linux kills a run before its executor and the user's other processes."""
    with contextlib.suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text(str(_OOM_SCORE_ADJ_MAX))


def handles_signal(pid: int, number: signal.Signals) -> bool | None:
    """Return whether process `pid` handles signal `number`; None if unknown."""
    with contextlib.suppress(OSError):
        for line in Path(f"/proc/{pid}/status").read_text().splitlines():
            if line.startswith("SigCgt:"):
                return bool(int(line.split()[1], 16) >> (number - 1) & 1)
    return None


def oom_kills() -> int:
    """Return the number of OOM kills on this host plus those in our innermost control group.

    Only an increase is meaningful. Returns 0 if no counter can be read, in which case a killed run is recorded as
    `crashed` by SIGKILL.
    """
    names = ("memory.events", "memory.oom_control")
    files = (folder / name for folder in cgroup_folders("memory") for name in names)
    counters = (Path("/proc/vmstat"), *islice(filter(Path.is_file, files), 1))
    return sum(_oom_kill_count(counter) for counter in counters)


def _oom_kill_count(counter: Path) -> int:
    with contextlib.suppress(OSError):
        rows = (line.split() for line in counter.read_text().splitlines())
        return sum(int(row[1]) for row in rows if len(row) == 2 and row[0] == "oom_kill")
    return 0


def thread_names() -> list[str]:
    """Return the names of this process's threads; an empty list if they cannot be read."""
    with contextlib.suppress(OSError):
        return sorted((task / "comm").read_text().strip() for task in Path("/proc/self/task").iterdir())
    return []


# Resource limits of the shell.

_MINIMUM_LIMITS = (
    (resource.RLIMIT_AS, 128 * 2**30, 1024, "the virtual memory of a process to {} KiB", "v"),
    (resource.RLIMIT_NOFILE, 256, 1, "the open files of a process to {}", "n"),
    (resource.RLIMIT_FSIZE, 64 * 2**20, 1024, "the size of a file to {} KiB", "f"),
)
"""The limit, its minimum, the unit used by the shell's `ulimit`, a description, and the `ulimit` option.

Torch reserves several GiB of address space. V8, which renders the report's figures, reserves 64 GiB for each of its two
heaps.
"""


def insufficient_limits() -> Iterator[str]:
    """Yield each resource limit (`ulimit`) that is too low for a sweep, with the command that raises it."""
    for limit, minimum, unit, description, option in _MINIMUM_LIMITS:
        soft, hard = resource.getrlimit(limit)
        if soft == resource.RLIM_INFINITY or soft >= minimum:
            continue
        if hard == resource.RLIM_INFINITY:
            remedy = f"ulimit -S{option} unlimited"
        elif hard >= minimum:
            remedy = f"ulimit -S{option} {hard // unit}"
        else:
            remedy = f"start the sweep in a shell with a higher hard limit (ulimit -H{option})"
        fault = f"this shell limits {description.format(soft // unit)} (ulimit -{option})"
        yield f"{fault}, but a sweep needs {minimum // unit}: {remedy}"


# Cores.


def allowed_cores() -> set[int]:
    """Return the logical cores in this process's CPU affinity; all cores if the system does not support affinity.

    Other processes may share them; `usable_cores` also takes into account how much of their time is available to us.
    """
    if hasattr(os, "sched_getaffinity"):
        return os.sched_getaffinity(0)
    return set(range(os.cpu_count() or 1))


def usable_cores() -> int:
    """Return the number of cores allowed by affinity and CPU quota, rounded down, at least 1."""
    allowed, quota = len(allowed_cores()), cpu_quota()
    return allowed if quota is None else max(1, min(allowed, int(quota)))
