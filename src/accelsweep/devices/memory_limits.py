"""The memory that is left to the processes of a run on this host, and the limit that says so.

Memory of the machine and of its control groups is shared by all ranks here. An address space or a data segment
(RLIMIT_AS, RLIMIT_DATA, see `man setrlimit`) is each process's own.
"""

from __future__ import annotations

import contextlib
import ctypes
import sys
from pathlib import Path
from typing import NamedTuple

import psutil

from accelsweep.devices.kinds import Limit
from accelsweep.devices.linux import memory_room

_STATUS = Path("/proc/self/status")

_CLEAR = Path("/proc/self/clear_refs")

_PEAK_ANEW = "5"  # man proc_pid_clear_refs: the peak of the resident set begins anew

_M_MMAP_THRESHOLD = -3

_LARGER_BYTES = 128 * 1024  # glibc's own first value; setting it ends the learning

_OF = {"RLIMIT_AS": "VmSize", "RLIMIT_DATA": "VmData"}


class FreeMemory(NamedTuple):
    """The memory that a rank may take, in bytes, and the limit that is the tightest."""

    bytes: int
    limit: Limit


def free_memory() -> FreeMemory:
    """Return what all processes here together may still take: of the machine's memory, and of their control group's."""
    machine, group = psutil.virtual_memory().available, memory_room()
    if group is not None and group < machine:
        return FreeMemory(group, "control group")
    return FreeMemory(machine, "machine memory")


def room_of_a_rank(ranks: int, stated: int | None = None) -> FreeMemory:
    """Return the room of each of `ranks` processes on this host; `stated` is a limit of the config's own, in bytes."""
    shared = free_memory()
    found = [FreeMemory(shared.bytes // ranks, shared.limit), *_own_limits()]
    if stated is not None:
        found.append(FreeMemory(stated, "measure.rank_memory_bytes"))
    return min(found, key=lambda room: room.bytes)


def _own_limits() -> list[FreeMemory]:
    if sys.platform != "linux":
        return []
    import resource

    found: list[FreeMemory] = []
    for name in ("RLIMIT_AS", "RLIMIT_DATA"):
        soft, _ = resource.getrlimit(getattr(resource, name))
        if soft != resource.RLIM_INFINITY:
            found.append(
                FreeMemory(max(0, soft - own_bytes(_OF[name])), "RLIMIT_AS" if name == "RLIMIT_AS" else "RLIMIT_DATA")
            )
    return found


def own_bytes(field: str) -> int:
    """Return a size of this process in bytes: `VmSize`, `VmData`, `VmRSS`, or the peak `VmHWM`. Linux only."""
    for line in _STATUS.read_text().splitlines():
        name, _, rest = line.partition(":")
        if name == field:
            return int(rest.split()[0]) * 1024
    raise OSError(f"{_STATUS} has no {field}")


def take_no_more_than(size: int) -> bool:
    """Let this process, and those that it starts, take `size` bytes more of data each; return whether that holds here.

    Linux counts private memory that can be written (RLIMIT_DATA), touched or not. An earlier, tighter limit stays.
    """
    if sys.platform != "linux":
        return False
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_DATA)
    wanted = own_bytes("VmData") + size
    others = [limit for limit in (soft, hard) if limit != resource.RLIM_INFINITY]
    resource.setrlimit(resource.RLIMIT_DATA, (min([wanted, *others]), hard))
    return True


def give_back_at_once() -> None:
    """Let glibc's allocator give each larger block back to the operating system as soon as it is free.

    By default it learns to keep blocks of up to 32 MiB (`man mallopt`, M_MMAP_THRESHOLD). Which of them fit into the
    gaps differs from run to run, and so would the largest batch.
    """
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).mallopt(_M_MMAP_THRESHOLD, _LARGER_BYTES)


def begin_peak() -> int:
    """Let the peak of this process's resident set begin anew, and return the set's present size in bytes."""
    with contextlib.suppress(OSError):
        _CLEAR.write_text(_PEAK_ANEW)
    return own_bytes("VmRSS")
