"""Detects other load on this machine before anything is measured."""

from __future__ import annotations

import re
import time
from collections.abc import Collection, Iterator
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import psutil

from accelsweep.devices.host import processor_times
from accelsweep.devices.kinds import monitored_devices
from accelsweep.devices.linux import allowed_cores
from accelsweep.measure.machine_state import busy_seconds, device_state
from accelsweep.measure.run_doubts import busy_cpu
from accelsweep.run_environment import DeviceState

SAMPLE_SECONDS = 0.5

_MAX_NAMES = 3

_MIN_CORES = 0.05
"""Processes using less than this share of a core are not listed."""


_FLAGS = re.compile(r"-([bBdEiIOPqRsSuvx]+|[WX].+)")
"""Options of Python's after which others or the script may follow."""


class OtherLoad:
    """Load of other processes on this machine since the object was created."""

    def __init__(self) -> None:
        """Read the counters."""
        self._cores = allowed_cores()
        self._before = _Snapshot.now(self._cores)

    def sentences(
        self,
        seconds: float = SAMPLE_SECONDS,
        needed_cores: float | None = None,
        devices: Collection[str] | None = None,
    ) -> list[str]:
        """Return one sentence each for the CPU and every GPU that other processes keep busy.

        Sleep if the object is younger than `seconds`. The CPU is busy if a run that needs `needed_cores` cores, by
        default all of them, would be disturbed. `devices` contains the identities of the GPUs to examine; None examines
        all of them.
        """
        time.sleep(max(0.0, self._before.at + seconds - time.monotonic()))
        needed = len(self._cores) if needed_cores is None else needed_cores
        return [*self._processor(_Snapshot.now(self._cores), needed), *_gpus(devices)]

    def _processor(self, after: _Snapshot, needed: float) -> Iterator[str]:
        before = self._before
        elapsed = after.at - before.at
        foreign = (after.busy - before.busy - (after.own_used - before.own_used)) / elapsed
        if busy_cpu(foreign, needed) is not None:
            shares = {process: (used - before.used.get(process, 0.0)) / elapsed for process, used in after.used.items()}
            others = {process: share for process, share in shares.items() if share >= _MIN_CORES}
            busiest = sorted(others.keys() - after.own, key=lambda process: -others[process])[:_MAX_NAMES]
            names = ", ".join(map(_name, busiest)) or "none of the visible processes"
            yield f"other processes keep {foreign:.1f} of {len(self._cores)} cores busy now ({names})"


def busy_now(
    seconds: float = SAMPLE_SECONDS, needed_cores: float | None = None, devices: Collection[str] | None = None
) -> list[str]:
    """Return what `OtherLoad.sentences` returns after `seconds` that begin now."""
    return OtherLoad().sentences(seconds, needed_cores, devices)


@dataclass(frozen=True)
class _Snapshot:
    """Counters in seconds: the clock, our cores' busy time, and the CPU time of each process and of ours together."""

    at: float
    busy: float
    used: dict[psutil.Process, float]
    own: set[psutil.Process]
    own_used: float
    """The CPU time of this process and its descendants, including those that have ended."""

    @classmethod
    def now(cls, cores: set[int]) -> _Snapshot:
        at, busy, times = time.monotonic(), busy_seconds(processor_times(), cores), _times_by_process()
        process = psutil.Process()
        own = {process, *process.children(recursive=True)}
        ended = (times[each].children_user + times[each].children_system for each in own if each in times)
        used = {process: spent.user + spent.system for process, spent in times.items()}
        return cls(at, busy, used, own, sum(used.get(each, 0.0) for each in own) + sum(ended))


def _times_by_process() -> dict[psutil.Process, Any]:
    times = {}
    for process in psutil.process_iter():
        with suppress(psutil.Error):
            times[process] = process.cpu_times()
    return times


def _gpus(devices: Collection[str] | None) -> Iterator[str]:
    for gpu in monitored_devices():
        if devices is not None and gpu.identity not in devices:
            continue
        state = DeviceState.of(device_state(gpu.identity, gpu.accelerator))
        if others := state.foreign_processes:
            names = ", ".join(_name_of(pid) for pid in others[:_MAX_NAMES])
            yield f"other processes are using {state.name or gpu.model} now ({names})"


def _name_of(pid: int) -> str:
    try:
        return _name(psutil.Process(pid))
    except psutil.NoSuchProcess:
        return f"id {pid}"


def _name(process: psutil.Process) -> str:
    try:
        return f"{_program(process)} with id {process.pid}"
    except psutil.Error:
        return f"id {process.pid}"


def _program(process: psutil.Process) -> str:
    """Return the process's name and, for Python, what it runs; without arguments, which may be secret."""
    name = process.name()
    if not name.startswith("python"):
        return name
    words = iter(process.cmdline()[1:])
    for word in words:
        if word in ("-W", "-X"):
            next(words, None)
        elif word == "-m":
            return " ".join([name, word, *islice(words, 1)])
        elif not word.startswith("-"):
            return f"{name} {Path(word).name}"
        elif not _FLAGS.fullmatch(word):  # such as -c, whose argument may be anything
            break
    return name
