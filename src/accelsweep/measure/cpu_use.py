"""How much processor time the window took, ours and that of others, and whether the machine had to swap meanwhile."""

from __future__ import annotations

import resource
from typing import Any

import psutil

from accelsweep.measure.clock import Clock, monotonic


class CpuUse:
    """Processor seconds between `start` and `stop`: this rank's (with its loader processes) and the whole machine's."""

    def __init__(self, clock: Clock = monotonic) -> None:
        """`clock` gives the length of the interval."""
        self._clock = clock
        self._before: dict[str, float] = {}
        self.reading: dict[str, float] = {}

    def start(self) -> None:
        """Read all counters before the window."""
        self._before = self._read()

    def stop(self) -> None:
        """Read all counters after the window; `reading` then holds the differences."""
        after = self._read()
        self.reading = {name: after[name] - before for name, before in self._before.items()}

    def _read(self) -> dict[str, float]:
        usage = resource.getrusage(resource.RUSAGE_SELF)
        swap = psutil.swap_memory()
        return {
            "seconds": self._clock(),
            "ours": _process_seconds(),
            "machine": _machine_seconds(),
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


def _machine_seconds() -> float:
    times = psutil.cpu_times()
    idle = times.idle + getattr(times, "iowait", 0.0)
    guests = getattr(times, "guest", 0.0) + getattr(times, "guest_nice", 0.0)
    return float(sum(times) - idle - guests)


def foreign_cores(readings: list[dict[str, Any]]) -> float | None:
    """Return how many cores other processes kept busy during the window, on average; None where it cannot be told.

    `readings` are those of all ranks of one host. Where the machine's counter shows less than we used ourselves (some
    containers show none), there is nothing to conclude.
    """
    if not readings or any(not reading for reading in readings):
        return None
    seconds = max(float(reading["seconds"]) for reading in readings)
    ours = sum(float(reading["ours"]) for reading in readings)
    busy = max(float(reading["machine"]) for reading in readings)
    if seconds <= 0 or busy < 0.9 * ours:
        return None
    return max(0.0, (busy - ours) / seconds)
