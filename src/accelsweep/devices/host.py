"""Memory, processors and processes of this host, read with psutil if it is installed, otherwise from Linux's /proc.

The worker runs in users' own environments, where psutil is required only on systems other than Linux.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator
from contextlib import suppress
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

_psutil: Any = import_module("psutil") if find_spec("psutil") else None
if _psutil is None and sys.platform != "linux":
    raise ImportError(f"measuring on {sys.platform} requires psutil: install it in the environment that runs use")

PROC = Path("/proc")


class Swap(NamedTuple):
    """Bytes currently in swap, and bytes swapped in and out since the machine started."""

    used: int
    swapped_in: int
    swapped_out: int


class ProcessorTimes(NamedTuple):
    """Seconds for which the processors have been busy since the machine started, in total and by core number."""

    busy: float
    by_core: dict[int, float]


def memory_total() -> int:
    """Return the machine's memory in bytes."""
    return int(_psutil.virtual_memory().total) if _psutil else _meminfo()["MemTotal"]


def memory_available() -> int:
    """Return the bytes that processes can still allocate without swapping."""
    return int(_psutil.virtual_memory().available) if _psutil else _meminfo()["MemAvailable"]


def memory_in_use() -> int:
    """Return the bytes of the machine's memory that are not available to further processes."""
    return memory_total() - memory_available()


def transferred_bytes() -> dict[str, float]:
    """Return what the machine's disks and its networks, without loopback, have transferred so far, both ways.

    Either is left out if the system does not report it, or if psutil is not installed.
    """
    found: dict[str, float] = {}
    if _psutil is None:
        return found
    with suppress(Exception):  # some containers hide these counters, in ways that psutil does not catch
        if (disks := _psutil.disk_io_counters()) is not None:
            found["disk"] = float(disks.read_bytes + disks.write_bytes)
    with suppress(Exception):
        interfaces = _psutil.net_io_counters(pernic=True).items()
        networks = [counters for name, counters in interfaces if not re.fullmatch(r"lo\d*", name)]
        found["network"] = float(sum(counters.bytes_recv + counters.bytes_sent for counters in networks))
    return found


def _meminfo() -> dict[str, int]:
    lines = (line.split() for line in (PROC / "meminfo").read_text().splitlines())
    return {name.rstrip(":"): int(value) * 1024 for name, value, *_ in lines}


def swap() -> Swap:
    """Return the machine's swap usage."""
    if _psutil:
        found = _psutil.swap_memory()
        return Swap(found.used, found.sin, found.sout)
    memory, page = _meminfo(), os.sysconf("SC_PAGE_SIZE")
    pages = dict(line.split() for line in (PROC / "vmstat").read_text().splitlines())
    used = memory["SwapTotal"] - memory["SwapFree"]
    return Swap(used, int(pages.get("pswpin", 0)) * page, int(pages.get("pswpout", 0)) * page)


def physical_cores() -> int | None:
    """Return the number of physical cores; None if unknown."""
    if _psutil:
        cores: int | None = _psutil.cpu_count(logical=False)
        return cores
    siblings = {path.read_text() for path in Path("/sys/devices/system/cpu").glob("cpu*/topology/thread_siblings_list")}
    return len(siblings) or None


def cpu_mhz() -> float | None:
    """Return the processors' current clock rate; None if unknown."""
    with suppress(AttributeError, OSError, NotImplementedError):
        if (frequency := _psutil.cpu_freq()) is not None:
            return float(round(frequency.current, 1))
    return None


def cpu_celsius() -> float | None:
    """Return the temperature of the hottest processor sensor; None if unknown."""
    with suppress(AttributeError, OSError):
        sensors = _psutil.sensors_temperatures()
        found = [
            reading.current for name in ("coretemp", "k10temp", "cpu_thermal") for reading in sensors.get(name, [])
        ]
        return float(max(found)) if found else None
    return None


def processor_times() -> ProcessorTimes:
    """Return how long the processors have been busy. Linux omits cores that are offline."""
    if sys.platform == "linux":
        with suppress(OSError):
            return _times_in_proc()
    cores = _psutil.cpu_times(percpu=True)
    return ProcessorTimes(_busy(_psutil.cpu_times()), dict(enumerate(map(_busy, cores))))


def _times_in_proc() -> ProcessorTimes:
    tick, busy = os.sysconf("SC_CLK_TCK"), dict[str, float]()
    for line in (PROC / "stat").read_text().splitlines():
        if line.startswith("cpu"):
            name, *ticks = line.split()
            times = [int(value) for value in ticks]  # user nice system idle iowait irq softirq steal guest guest_nice
            busy[name] = (sum(times[:8]) - times[3] - times[4]) / tick  # user and nice include guest time
    return ProcessorTimes(busy["cpu"], {int(name[3:]): seconds for name, seconds in busy.items() if name != "cpu"})


def _busy(times: Any) -> float:
    return float(sum(times) - times.idle - getattr(times, "iowait", 0.0))


def children() -> frozenset[int]:
    """Return the process IDs of all descendants of this process."""
    if _psutil:
        return frozenset(child.pid for child in _psutil.Process().children(recursive=True))
    parents = {pid: int(stat[1]) for pid, stat in _process_stats()}
    found, new = set[int](), {os.getpid()}
    while new := {pid for pid, parent in parents.items() if parent in new}:
        found |= new
    return frozenset(found)


def processor_seconds() -> float:
    """Return the processor seconds used by this process and its descendants, ended ones included.

    A process that has not been waited for yet is missing; loader workers, which end with each epoch, are waited for.
    """
    wanted = {os.getpid(), *children()}
    if not _psutil:
        tick = os.sysconf("SC_CLK_TCK")
        return sum(sum(map(int, stat[11:15])) / tick for pid, stat in _process_stats() if pid in wanted)
    total = 0.0
    for pid in wanted:
        with suppress(_psutil.Error):
            times = _psutil.Process(pid).cpu_times()
            total += times.user + times.system
            total += getattr(times, "children_user", 0.0) + getattr(times, "children_system", 0.0)
    return total


def _process_stats() -> Iterator[tuple[int, list[str]]]:
    """Yield each process's ID and its fields in /proc/PID/stat from the state onwards (proc_pid_stat(5))."""
    for path in PROC.iterdir():
        if path.name.isdigit():
            with suppress(OSError):
                yield int(path.name), (path / "stat").read_text().rpartition(")")[2].split()


def proportional_set_size() -> int:
    """Return the PSS of this process in bytes. Raises OSError if the system does not report it."""
    for line in (PROC / "self" / "smaps_rollup").read_text().splitlines():
        if line.startswith("Pss:"):
            return int(line.split()[1]) * 1024
    raise OSError("smaps_rollup has no Pss")


def resident_bytes() -> int:
    """Return this process's resident memory."""
    if _psutil:
        return int(_psutil.Process().memory_info().rss)
    return int((PROC / "self" / "statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def private_bytes() -> int:
    """Return this process's resident memory, excluding shared memory if the system reports it (Linux)."""
    if _psutil:
        held = _psutil.Process().memory_info()
        return int(held.rss - getattr(held, "shared", 0))
    resident, shared = (int(pages) for pages in (PROC / "self" / "statm").read_text().split()[1:3])
    return (resident - shared) * os.sysconf("SC_PAGE_SIZE")


def pid_exists(pid: int) -> bool:
    """Return whether a process with this ID exists."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except (PermissionError, OverflowError) as error:
        return isinstance(error, PermissionError)
    return True
