"""Determines how much more memory a rank may use on this host and which limit applies; enforces limits and reads usage.

The memory of the machine and of its control groups is shared by all ranks on the host. Address space and data segment
(RLIMIT_AS, RLIMIT_DATA; `man setrlimit`) are limited per process.
"""

from __future__ import annotations

import contextlib
import ctypes
import resource
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Literal, NamedTuple

from accelsweep.devices.host import memory_available
from accelsweep.devices.linux import cgroup_free_memory

MemoryLimit = Literal[
    "device memory", "machine memory", "control group", "RLIMIT_AS", "RLIMIT_DATA", "measure.rank_memory_bytes"
]
"""The limits that can end a search for the largest batch.

All are detected automatically except the last, which is a config key.
"""

_STATUS = Path("/proc/self/status")
_CLEAR_REFS = Path("/proc/self/clear_refs")
_RESET_PEAK_RSS = "5"  # man proc_pid_clear_refs

_M_MMAP_THRESHOLD = -3
_MMAP_THRESHOLD_BYTES = 128 * 1024  # glibc's initial value; setting it explicitly disables its dynamic adjustment


class FreeMemory(NamedTuple):
    """The bytes that a rank may still use, and the limit that applies."""

    bytes: int
    limit: MemoryLimit

    def capped(self, configured: int | None) -> FreeMemory:
        """Return the tighter of this limit and `configured`, the value of `measure.rank_memory_bytes`."""
        if configured is None or configured >= self.bytes:
            return self
        return FreeMemory(configured, "measure.rank_memory_bytes")

    def without_headroom(self, headroom: float) -> int:
        """Return the bytes that remain after reserving the share `headroom`."""
        return int(self.bytes * (1 - headroom))


def free_memory() -> FreeMemory:
    """Return how much memory all processes on this host may still use together.

    The limit is that of the machine or of the control group.
    """
    machine, group = memory_available(), cgroup_free_memory()
    if group is not None and group < machine:
        return FreeMemory(group, "control group")
    return FreeMemory(machine, "machine memory")


def free_memory_per_rank(ranks: int, configured: int | None = None) -> FreeMemory:
    """Return how much memory each of `ranks` processes on this host may use.

    `configured` is `measure.rank_memory_bytes`.
    """
    shared = free_memory()
    limits = [FreeMemory(shared.bytes // ranks, shared.limit), *_process_limits()]
    return min(limits, key=lambda free: free.bytes).capped(configured)


def _process_limits() -> Iterator[FreeMemory]:
    if sys.platform != "linux":
        return
    limits: tuple[tuple[MemoryLimit, int, str], ...] = (
        ("RLIMIT_AS", resource.RLIMIT_AS, "VmSize"),
        ("RLIMIT_DATA", resource.RLIMIT_DATA, "VmData"),
    )
    for name, number, used in limits:
        soft, _ = resource.getrlimit(number)
        if soft != resource.RLIM_INFINITY:
            yield FreeMemory(max(0, soft - process_bytes(used)), name)


def process_bytes(field: str) -> int:
    """Return one of this process's sizes in bytes: `VmSize`, `VmData`, `VmRSS`, or the peak `VmHWM`. Linux only."""
    for line in _STATUS.read_text().splitlines():
        name, _, rest = line.partition(":")
        if name == field:
            return int(rest.split()[0]) * 1024
    raise OSError(f"{_STATUS} has no {field}")


def limit_data_growth(size: int) -> None:
    """Limit this process and its children to `size` more bytes of data each. Linux only.

    RLIMIT_DATA counts private writable memory whether or not it has been touched. A tighter existing limit is kept.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_DATA)
    existing = [limit for limit in (soft, hard) if limit != resource.RLIM_INFINITY]
    resource.setrlimit(resource.RLIMIT_DATA, (min([process_bytes("VmData") + size, *existing]), hard))


def return_freed_blocks() -> None:
    """Make glibc return every block of at least 128 KiB to the operating system as soon as it is freed.

    By default, glibc adapts its threshold and keeps blocks of up to 32 MiB (`man mallopt`, M_MMAP_THRESHOLD).
    Fragmentation, and therefore the largest batch, would then vary from run to run.
    """
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).mallopt(_M_MMAP_THRESHOLD, _MMAP_THRESHOLD_BYTES)


def reset_peak_rss() -> int:
    """Reset the peak of this process's resident set (VmHWM) and return its current size in bytes. Linux only."""
    with contextlib.suppress(OSError):
        _CLEAR_REFS.write_text(_RESET_PEAK_RSS)
    return process_bytes("VmRSS")
