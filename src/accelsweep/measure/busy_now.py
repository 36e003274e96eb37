"""Detects other load on this machine before anything is measured."""

from __future__ import annotations

import time
from collections.abc import Collection, Iterator
from dataclasses import dataclass

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


def busy_now(
    seconds: float = SAMPLE_SECONDS, needed_cores: float | None = None, devices: Collection[str] | None = None
) -> list[str]:
    """Sample for `seconds`; return one sentence each for the CPU and every GPU that other processes keep busy.

    The CPU is busy if a run that needs `needed_cores` cores, by default all of them, would be disturbed. `devices`
    contains the identities of the GPUs to examine; None examines all of them.
    """
    return [*_processor(seconds, needed_cores), *_gpus(devices)]


@dataclass(frozen=True)
class _Snapshot:
    """Counters in seconds: the clock, our cores' busy time, and each process's CPU time."""

    at: float
    busy: float
    used: dict[psutil.Process, float]

    @classmethod
    def now(cls, cores: set[int]) -> _Snapshot:
        return cls(time.monotonic(), busy_seconds(processor_times(), cores), _seconds_by_process())


def _processor(seconds: float, needed_cores: float | None) -> Iterator[str]:
    cores = allowed_cores()
    needed = len(cores) if needed_cores is None else needed_cores
    before = _Snapshot.now(cores)
    time.sleep(seconds)
    after = _Snapshot.now(cores)
    elapsed = after.at - before.at
    shares = {process: (now - before.used.get(process, now)) / elapsed for process, now in after.used.items()}
    process = psutil.Process()
    own = {process, *process.children(recursive=True)}
    foreign = (after.busy - before.busy) / elapsed - sum(shares.get(process, 0.0) for process in own)
    if busy_cpu(foreign, needed) is not None:
        others = {process: share for process, share in shares.items() if process not in own and share >= _MIN_CORES}
        busiest = sorted(others, key=lambda process: -others[process])[:_MAX_NAMES]
        names = ", ".join(map(_name, busiest)) or "none of the visible processes"
        yield f"other processes keep {foreign:.1f} of {len(cores)} cores busy now ({names})"


def _seconds_by_process() -> dict[psutil.Process, float]:
    seconds = {}
    for process in psutil.process_iter():
        try:
            times = process.cpu_times()
        except psutil.Error:
            continue
        seconds[process] = times.user + times.system
    return seconds


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
        return f"{process.name()} with id {process.pid}"
    except psutil.Error:
        return f"id {process.pid}"
