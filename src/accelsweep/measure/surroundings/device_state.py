"""The state of a CUDA device, read through NVML: clocks, temperature, power, throttle reasons, other processes."""

from __future__ import annotations

import os
from typing import Any

import psutil

from accelsweep.machine.cuda import handle_of
from accelsweep.machine.nvml import NoNvml, ask, nvml, text

THROTTLES = {
    "SwPowerCap": 0x4,
    "HwSlowdown": 0x8,
    "SwThermalSlowdown": 0x20,
    "HwThermalSlowdown": 0x40,
    "HwPowerBrakeSlowdown": 0x80,
}
"""NVML's clock event bits that mean "slower than it could": nvmlClocksEventReasons in nvml.h."""

VIOLATIONS = {"power cap": 0, "heat": 1, "board limit": 3, "reliability": 5}
"""NVML's counters of the time that a device was held back, by reason: nvmlPerfPolicyType_t in nvml.h.

They run all the time, so that two readings cover everything between them.
"""


def device_state(uuid: str) -> dict[str, Any]:
    """Return the state of the device named by `uuid`, or `{"uuid": ..., "reason": why there is none}`."""
    try:
        with nvml() as library:
            handle = handle_of(uuid)
            return {"uuid": uuid, **_state(library, handle)}
    except NoNvml as error:
        return {"uuid": uuid, "reason": str(error)}


class DeviceWatch:
    """The state of a CUDA device as the window opens and as it closes: at work, unlike before and after the run.

    NVML is asked at these two moments only, outside of the timed steps. A thread that polled it would compete with the
    loop for the interpreter. The driver's own counters (`VIOLATIONS`) cover the time between.
    """

    def __init__(self, uuid: str) -> None:
        """`uuid` names the device as CUDA does."""
        self._uuid = uuid
        self.states: dict[str, dict[str, Any]] = {}

    def start(self) -> None:
        """Read the state after warm-up."""
        self.states["opened"] = {"devices": [device_state(self._uuid)]}

    def stop(self) -> None:
        """Read the state at the end of the work."""
        self.states["closed"] = {"devices": [device_state(self._uuid)]}


def _state(library: Any, handle: Any) -> dict[str, Any]:
    memory = _or_none(library.nvmlDeviceGetMemoryInfo, handle)
    bits = _or_none(library.nvmlDeviceGetCurrentClocksThrottleReasons, handle)
    milliwatts = _or_none(library.nvmlDeviceGetPowerUsage, handle)
    limit = _or_none(library.nvmlDeviceGetEnforcedPowerLimit, handle)
    name = _or_none(library.nvmlDeviceGetName, handle)
    return {
        "name": None if name is None else text(name),
        "sm_mhz": _or_none(library.nvmlDeviceGetClockInfo, handle, library.NVML_CLOCK_SM),
        "sm_mhz_max": _or_none(library.nvmlDeviceGetMaxClockInfo, handle, library.NVML_CLOCK_SM),
        "memory_mhz": _or_none(library.nvmlDeviceGetClockInfo, handle, library.NVML_CLOCK_MEM),
        "celsius": _or_none(library.nvmlDeviceGetTemperature, handle, library.NVML_TEMPERATURE_GPU),
        "watts": None if milliwatts is None else milliwatts / 1000.0,
        "watts_limit": None if limit is None else limit / 1000.0,
        "memory_used_bytes": None if memory is None else memory.used,
        "memory_total_bytes": None if memory is None else memory.total,
        "throttles": None if bits is None else [word for word, bit in THROTTLES.items() if bits & bit],
        "held_back": {word: _held_back(library, handle, policy) for word, policy in VIOLATIONS.items()},
        "foreign_processes": _foreign(library, handle),
    }


def _held_back(library: Any, handle: Any, policy: int) -> list[float] | None:
    """Return the seconds that a device was held back so far, and the counter's own clock in seconds; None if unknown.

    nvml.h: `violationTime` is in nanoseconds, `referenceTime` in microseconds.
    """
    counter = _or_none(library.nvmlDeviceGetViolationStatus, handle, policy)
    return None if counter is None else [counter.violationTime / 1e9, counter.referenceTime / 1e6]


def _or_none(question: Any, *arguments: Any) -> Any:
    try:
        return ask(question, *arguments)
    except NoNvml:
        return None


def _foreign(library: Any, handle: Any) -> list[int] | None:
    """Return other process groups' process ids on the device.

    None where they cannot be found: inside a container NVML shows the host's process ids, which do not exist there.
    """
    running = _or_none(library.nvmlDeviceGetComputeRunningProcesses, handle)
    if running is None:
        return None
    found = [process.pid for process in running]
    if any(not psutil.pid_exists(pid) for pid in found):
        return None
    return [pid for pid in found if _group_of(pid) != os.getpgid(0)]


def _group_of(pid: int) -> int | None:
    try:
        return os.getpgid(pid)
    except ProcessLookupError:
        return None
