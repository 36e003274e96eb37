"""The control groups of this process: their folders, and the processor time and the memory that they grant.

A container, a Slurm step or a systemd unit may grant two cores of sixty-four. The affinity still shows all of them.

https://docs.kernel.org/admin-guide/cgroup-v2.html describes version 2 (cpu.max, memory.max).
https://docs.kernel.org/scheduler/sched-bwc.html and https://docs.kernel.org/admin-guide/cgroup-v1/memory.html describe
version 1 (cpu.cfs_*, memory.limit_in_bytes).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

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
