"""The processor time of the window, ours and that of others; whether the machine had to swap, or slept, meanwhile."""

from __future__ import annotations

import resource
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import psutil

from accelsweep.machine.cpu import allowed_cores
from accelsweep.measure.clock import Clock, all_clocks, clock_gap, monotonic


class CpuUse:
    """Processor seconds between `start` and `stop`: this rank's (with its loader processes) and all on its cores.

    Its cores are those that it may run on. Other processes on the rest of a shared machine take no processor time from
    it.
    """

    def __init__(self, clock: Clock = monotonic) -> None:
        """`clock` gives the length of the interval."""
        self._clock = clock
        self._before: dict[str, float] = {}
        self._cores: set[int] = set()
        self.reading: dict[str, float] = {}

    def start(self) -> None:
        """Read all counters before the window."""
        self._cores = allowed_cores()
        self._before = self._read()

    def stop(self) -> None:
        """Read all counters after the window; `reading` then holds the differences."""
        after = self._read()
        self.reading = {name: after[name] - before for name, before in self._before.items()}
        self.reading["clock_gap"] = clock_gap(self.reading)

    def _read(self) -> dict[str, float]:
        usage = resource.getrusage(resource.RUSAGE_SELF)
        swap = psutil.swap_memory()
        return {
            "seconds": self._clock(),
            **all_clocks(),
            "ours": _process_seconds(),
            "busy": busy_seconds(busy_by_core(), self._cores),
            "major_faults": float(usage.ru_majflt),
            "involuntary_switches": float(usage.ru_nivcsw),
            "swapped_bytes": float(swap.sin + swap.sout),
        }


def _process_seconds() -> float:
    process = psutil.Process()
    total = 0.0
    for member in (process, *process.children(recursive=True)):
        try:
            times = member.cpu_times()
        except psutil.Error:
            continue
        total += times.user + times.system
    return total


def busy_by_core() -> dict[int, float]:
    """Return the busy seconds of each logical core since the machine began, by the core's number.

    Linux leaves switched-off cores out of its list, and psutil leaves out the numbers. Both have the same cores in the
    same order.
    """
    times = psutil.cpu_times(percpu=True)
    try:
        lines = Path(getattr(psutil, "PROCFS_PATH", "/proc"), "stat").read_text().splitlines()
    except OSError:
        lines = []
    numbers = [int(line.split()[0][3:]) for line in lines if line.startswith("cpu") and line[3].isdigit()]
    return dict(zip(numbers or range(len(times)), map(_busy, times), strict=False))


def busy_seconds(by_core: Mapping[int, float], allowed: set[int]) -> float:
    """Return the busy seconds of the `allowed` cores, or of the whole machine where `by_core` lacks some of them.

    Containers may give new numbers to the cores that they show. Those are ours, and their sum is the answer.
    """
    if allowed < by_core.keys():
        return sum(by_core[core] for core in allowed)
    return _busy(psutil.cpu_times())


def _busy(times: Any) -> float:
    idle = times.idle + getattr(times, "iowait", 0.0)
    guests = getattr(times, "guest", 0.0) + getattr(times, "guest_nice", 0.0)
    return float(sum(times) - idle - guests)


def foreign_cores(readings: list[dict[str, Any]]) -> float | None:
    """Return how many cores other processes kept busy during the window, on average; None where it is unknown.

    `readings` are those of all ranks of one host. Where the counter of our cores shows less than we used ourselves
    (some containers show none), there is nothing to conclude.
    """
    if not readings or any(not reading for reading in readings):
        return None
    seconds = max(float(reading["seconds"]) for reading in readings)
    ours = sum(float(reading["ours"]) for reading in readings)
    busy = max(float(reading["busy"]) for reading in readings)
    if seconds <= 0 or busy < 0.9 * ours:
        return None
    return max(0.0, (busy - ours) / seconds)
