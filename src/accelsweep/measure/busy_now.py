"""Other users of this machine: asked before anything is measured. A run asks again by itself."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass

import psutil

from accelsweep.devices.host import processor_times
from accelsweep.devices.kinds import monitored_devices
from accelsweep.devices.linux import allowed_cores
from accelsweep.measure.machine_state import busy_seconds, device_state
from accelsweep.measure.run_doubts import FOREIGN
from accelsweep.run_environment import DeviceState

LOOK_SECONDS = 0.5

_MOST_NAMES = 3

_LEAST_CORES = 0.05
"""Processes that use less than this share of one core are not named."""


def busy_now(seconds: float = LOOK_SECONDS) -> list[str]:
    """Look for `seconds`; return a sentence for the processor and for each GPU that others keep busy."""
    return [*_processor(seconds), *_gpus()]


@dataclass(frozen=True)
class _Look:
    """The counters of one moment, in seconds: the clock, the busy time of our cores, and each process' own."""

    at: float
    busy: float
    used: dict[psutil.Process, float]

    @classmethod
    def now(cls, cores: set[int]) -> _Look:
        return cls(time.monotonic(), busy_seconds(processor_times(), cores), _seconds_by_process())


def _processor(seconds: float) -> Iterator[str]:
    cores = allowed_cores()
    before = _Look.now(cores)
    time.sleep(seconds)
    after = _Look.now(cores)
    elapsed = after.at - before.at
    shares = {process: (now - before.used.get(process, now)) / elapsed for process, now in after.used.items()}
    own = _ours()
    others = (after.busy - before.busy) / elapsed - sum(shares.get(process, 0.0) for process in own)
    if others >= FOREIGN * len(cores):
        named = _names({process: share for process, share in shares.items() if process not in own})
        yield f"other processes keep {others:.1f} of {len(cores)} cores busy now ({named})"


def _seconds_by_process() -> dict[psutil.Process, float]:
    found = {}
    for process in psutil.process_iter():
        try:
            times = process.cpu_times()
        except psutil.Error:
            continue
        found[process] = times.user + times.system
    return found


def _ours() -> set[psutil.Process]:
    process = psutil.Process()
    return {process, *process.children(recursive=True)}


def _names(shares: dict[psutil.Process, float]) -> str:
    busiest = sorted((process for process in shares if shares[process] >= _LEAST_CORES), key=lambda each: -shares[each])
    return ", ".join(map(_name, busiest[:_MOST_NAMES])) or "none of those that can be seen from here"


def _gpus() -> Iterator[str]:
    for gpu in monitored_devices():
        state = DeviceState.of(device_state(gpu.identity, gpu.accelerator))
        if others := state.foreign_processes:
            names = ", ".join(_name_of(pid) for pid in others[:_MOST_NAMES])
            yield f"other processes compute on {state.name or gpu.model} now ({names})"


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
