"""AMD's management library, which comes with ROCm: the facts and the state of an AMD GPU.

https://rocm.docs.amd.com/projects/amdsmi/en/latest/reference/amdsmi-py-api.html documents it. Functions that a device
lacks raise, or answer `N/A`. None of this was ever run on AMD's hardware (docs/devices.md).
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from accelsweep.machine.drivers.foreign import foreign
from accelsweep.machine.drivers.telemetry import NoReading

HELD_BACK_COUNTERS = {"power cap": "acc_ppt_pwr", "heat": "acc_socket_thrm", "memory's heat": "acc_hbm_thrm"}
"""amdsmi_violation_status_t: how often a limit was met, of `acc_counter` looks. The share is what counts."""


class NoAmdSmi(NoReading):
    """AMD SMI has no answer; the message is the reason to show."""


@contextmanager
def amdsmi() -> Iterator[Any]:
    """Give the library, initialised. Raises NoAmdSmi where it is not installed or finds no driver."""
    try:
        library = importlib.import_module("amdsmi")
    except (ImportError, OSError, KeyError) as error:
        raise NoAmdSmi(f"AMD SMI: the package amdsmi of ROCm cannot be imported here ({error})") from None
    ask(library.amdsmi_init)
    try:
        yield library
    finally:
        library.amdsmi_shut_down()


def ask(question: Callable[..., Any], *arguments: Any) -> Any:
    """Return AMD SMI's answer; raise NoAmdSmi with the library's own words where it has none."""
    try:
        answer = question(*arguments)
    except Exception as error:  # noqa: BLE001 - its errors have no base class before ROCm 6
        raise NoAmdSmi(f"AMD SMI: {error}") from None
    if answer == "N/A":
        raise NoAmdSmi(f"AMD SMI: {question.__name__} is not available on this device")
    return answer


def address(library: Any, handle: Any) -> str:
    """Return the device's PCI address, such as `0000:0c:00.0`: torch and AMD SMI agree on nothing else."""
    return str(ask(library.amdsmi_get_gpu_device_bdf, handle)).lower()


def total_bytes(library: Any, handle: Any) -> int:
    """Return the memory of the device."""
    return int(ask(library.amdsmi_get_gpu_memory_total, handle, library.AmdSmiMemoryType.VRAM))


def model(library: Any, handle: Any) -> str:
    """Return the device's name."""
    return str(ask(library.amdsmi_get_gpu_asic_info, handle)["market_name"])


class AmdSmiTelemetry:
    """AMD SMI as telemetry. An identity is a PCI address."""

    def state(self, identity: str) -> dict[str, Any]:
        """Return the device's state; raise NoAmdSmi where there is none."""
        with amdsmi() as library:
            return _state(library, _handle_of(library, identity))

    def joules(self, identity: str) -> float:
        """Return the energy accumulator, whose resolution is in microjoules; raise NoAmdSmi where there is none."""
        with amdsmi() as library:
            seen = ask(library.amdsmi_get_energy_count, _handle_of(library, identity))
        ticks = seen["energy_accumulator"] if "energy_accumulator" in seen else seen["power"]
        return float(ticks) * float(seen["counter_resolution"]) / 1e6


def _handle_of(library: Any, identity: str) -> Any:
    for handle in ask(library.amdsmi_get_processor_handles):
        if address(library, handle) == identity.lower():
            return handle
    raise NoAmdSmi(f"AMD SMI: no device has the PCI address {identity}")


def _state(library: Any, handle: Any) -> dict[str, Any]:
    clock = _or_empty(library.amdsmi_get_clock_info, handle, library.AmdSmiClkType.GFX)
    power = _or_empty(library.amdsmi_get_power_info, handle)
    heat = (library.AmdSmiTemperatureType.HOTSPOT, library.AmdSmiTemperatureMetric.CURRENT)
    return {
        "name": _or_none(model, library, handle),
        "sm_mhz": _number(clock, "clk"),
        "sm_mhz_max": _number(clock, "max_clk"),
        "memory_mhz": _number(_or_empty(library.amdsmi_get_clock_info, handle, library.AmdSmiClkType.MEM), "clk"),
        "celsius": _or_none(library.amdsmi_get_temp_metric, handle, *heat),
        "watts": _number(power, "socket_power", "current_socket_power", "average_socket_power"),
        "watts_limit": _number(power, "power_limit"),
        "memory_used_bytes": _or_none(library.amdsmi_get_gpu_memory_usage, handle, library.AmdSmiMemoryType.VRAM),
        "memory_total_bytes": _or_none(total_bytes, library, handle),
        "throttles": None,
        "held_back": _held_back(_or_empty(library.amdsmi_get_violation_status, handle)),
        "foreign_processes": foreign(_processes(library, handle)),
    }


def _held_back(counted: Mapping[str, Any]) -> dict[str, list[float] | None]:
    looks = _number(counted, "acc_counter")
    found = {word: _number(counted, key) for word, key in HELD_BACK_COUNTERS.items()}
    return {word: None if looks is None or met is None else [met, looks] for word, met in found.items()}


def _processes(library: Any, handle: Any) -> list[int] | None:
    running = _or_none(library.amdsmi_get_gpu_process_list, handle)
    return None if running is None else [int(process["pid"]) for process in running]


def _number(answers: Mapping[str, Any], *keys: str) -> float | None:
    """Return the first of the keys' values that is a number."""
    return next((answers[key] for key in keys if isinstance(answers.get(key), int | float)), None)


def _or_none(question: Callable[..., Any], *arguments: Any) -> Any:
    try:
        return ask(question, *arguments)
    except NoAmdSmi:
        return None


def _or_empty(question: Callable[..., Any], *arguments: Any) -> Mapping[str, Any]:
    return _or_none(question, *arguments) or {}
