"""The state and the energy of NVIDIA's devices: clocks, temperature, power, throttle reasons, other processes."""

from __future__ import annotations

from typing import Any

from accelsweep.machine.drivers.foreign import foreign
from accelsweep.machine.drivers.nvml import NoNvml, ask, handle_of, nvml, text

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


class NvmlTelemetry:
    """NVML as telemetry. An identity is a UUID as CUDA has it."""

    def state(self, identity: str) -> dict[str, Any]:
        """Return the device's state; raise NoNvml where NVML has none."""
        with nvml() as library:
            return _state(library, handle_of(identity))

    def joules(self, identity: str) -> float:
        """Return NVML's total-energy counter, which is in millijoules; raise NoNvml where there is none."""
        with nvml() as library:
            return float(ask(library.nvmlDeviceGetTotalEnergyConsumption, handle_of(identity))) / 1e3


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
        "foreign_processes": foreign(_processes(library, handle)),
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


def _processes(library: Any, handle: Any) -> list[int] | None:
    running = _or_none(library.nvmlDeviceGetComputeRunningProcesses, handle)
    return None if running is None else [process.pid for process in running]
