"""AMD GPUs, which ROCm builds of torch, and therefore all configs, call `cuda`.

HIP_VISIBLE_DEVICES restricts which of them are visible:
https://rocm.docs.amd.com/en/latest/conceptual/gpu-isolation.html. This variable contains indices and takes precedence
over CUDA_VISIBLE_DEVICES, which HIP reads as well. ROCR_VISIBLE_DEVICES is applied before both: indices then refer to
the devices that it leaves visible, and no device is leased by name.
"""

from __future__ import annotations

import importlib
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from typing import TYPE_CHECKING, Any

from accelsweep.devices.device_kind import (
    DeviceKind,
    Gpu,
    TelemetryUnavailable,
    foreign_processes,
    torch_is_built_for_rocm,
)

if TYPE_CHECKING:
    import torch

VISIBILITY_VARIABLES = ("HIP_VISIBLE_DEVICES", "CUDA_VISIBLE_DEVICES")
"""The variables that restrict visible devices, in order of precedence."""

VIOLATIONS = {"power cap": "acc_ppt_pwr", "heat": "acc_socket_thrm", "memory's heat": "acc_hbm_thrm"}
"""Fields of amdsmi_violation_status_t that count how many of `acc_counter` samples exceeded a limit. Only the ratio is
used."""


class AmdSmiUnavailable(TelemetryUnavailable):
    """AMD SMI cannot answer a query; the exception's message is the reason to report."""


_opened = 0
"""How many callers use the library now; unlike NVML, it does not count them itself."""


@contextmanager
def amdsmi() -> Iterator[Any]:
    """Yield AMD's management library, initialised. Raises AmdSmiUnavailable if the library or its driver is missing."""
    global _opened  # noqa: PLW0603  the library is initialised once per process
    try:
        library = importlib.import_module("amdsmi")
    except (ImportError, OSError, KeyError) as error:
        raise AmdSmiUnavailable(f"AMD SMI: ROCm's package amdsmi cannot be imported here ({error})") from None
    if not _opened:
        _ask(library.amdsmi_init)
    _opened += 1
    try:
        yield library
    finally:
        _opened -= 1
        if not _opened:
            library.amdsmi_shut_down()


def _ask(question: Callable[..., Any], *arguments: Any) -> Any:
    """Return the result of an AMD SMI call; if it fails, raise AmdSmiUnavailable with its error message."""
    try:
        answer = question(*arguments)
    except Exception as error:  # noqa: BLE001 - its errors have no base class before ROCm 6
        raise AmdSmiUnavailable(f"AMD SMI: {error}") from None
    if answer == "N/A":
        raise AmdSmiUnavailable(f"AMD SMI: {question.__name__} is not available on this device")
    return answer


def _or_none(question: Callable[..., Any], *arguments: Any) -> Any:
    try:
        return _ask(question, *arguments)
    except AmdSmiUnavailable:
        return None


def _fields(question: Callable[..., Any], *arguments: Any) -> Mapping[str, Any]:
    return _or_none(question, *arguments) or {}


def _number(fields: Mapping[str, Any], *keys: str) -> float | None:
    """Return the first numeric value among these keys; unknown values are reported as `N/A`."""
    return next((fields[key] for key in keys if isinstance(fields.get(key), int | float)), None)


def _pci_address(library: Any, handle: Any) -> str:
    """Return the PCI address, such as `0000:0c:00.0`: the only identifier common to torch and AMD SMI."""
    return str(_ask(library.amdsmi_get_gpu_device_bdf, handle)).lower()


class AmdSmiTelemetry:
    """Telemetry from AMD SMI. A device is identified by its PCI address."""

    def state(self, identity: str) -> dict[str, Any]:
        """Return the device's state. Raises AmdSmiUnavailable."""
        with amdsmi() as library:
            return _state(library, _handle_of(library, identity))

    def readings(self, identity: str) -> dict[str, Any]:
        """Return what changes while the device runs. Raises AmdSmiUnavailable."""
        with amdsmi() as library:
            return _readings(library, _handle_of(library, identity))

    def joules(self, identity: str) -> float:
        """Return the energy from AMD SMI's accumulator, whose resolution is reported in microjoules.

        Raises AmdSmiUnavailable.
        """
        with amdsmi() as library:
            energy = _ask(library.amdsmi_get_energy_count, _handle_of(library, identity))
        ticks = energy["energy_accumulator"] if "energy_accumulator" in energy else energy["power"]  # before ROCm 6.2
        return float(ticks) * float(energy["counter_resolution"]) / 1e6


def _handle_of(library: Any, identity: str) -> Any:
    for handle in _ask(library.amdsmi_get_processor_handles):
        if _pci_address(library, handle) == identity.lower():
            return handle
    raise AmdSmiUnavailable(f"AMD SMI: no device has the PCI address {identity}")


def _state(library: Any, handle: Any) -> dict[str, Any]:
    asic = _fields(library.amdsmi_get_gpu_asic_info, handle)
    readings = _readings(library, handle)
    processes = readings.pop("processes")
    return {
        "name": str(asic["market_name"]) if "market_name" in asic else None,
        "sm_mhz_max": _number(_fields(library.amdsmi_get_clock_info, handle, library.AmdSmiClkType.GFX), "max_clk"),
        "memory_total_bytes": _or_none(library.amdsmi_get_gpu_memory_total, handle, library.AmdSmiMemoryType.VRAM),
        **readings,
        "foreign_processes": foreign_processes(processes),
    }


def _readings(library: Any, handle: Any) -> dict[str, Any]:
    power = _fields(library.amdsmi_get_power_info, handle)
    activity = _number(_fields(library.amdsmi_get_gpu_activity, handle), "gfx_activity")
    hotspot = (library.AmdSmiTemperatureType.HOTSPOT, library.AmdSmiTemperatureMetric.CURRENT)
    violations = _fields(library.amdsmi_get_violation_status, handle)
    processes = _or_none(library.amdsmi_get_gpu_process_list, handle)
    return {
        "sm_mhz": _number(_fields(library.amdsmi_get_clock_info, handle, library.AmdSmiClkType.GFX), "clk"),
        "memory_mhz": _number(_fields(library.amdsmi_get_clock_info, handle, library.AmdSmiClkType.MEM), "clk"),
        "utilisation": None if activity is None else activity / 100.0,
        "celsius": _or_none(library.amdsmi_get_temp_metric, handle, *hotspot),
        "watts": _number(power, "socket_power", "current_socket_power", "average_socket_power"),
        "watts_limit": _number(power, "power_limit"),
        "memory_used_bytes": _or_none(library.amdsmi_get_gpu_memory_usage, handle, library.AmdSmiMemoryType.VRAM),
        "throttles": None,
        "held_back": {reason: _violation(violations, key) for reason, key in VIOLATIONS.items()},
        "processes": None if processes is None else [int(process["pid"]) for process in processes],
    }


def _violation(violations: Mapping[str, Any], key: str) -> list[float] | None:
    count, samples = _number(violations, key), _number(violations, "acc_counter")
    return None if count is None or samples is None else [count, samples]


class RocmKind(DeviceKind):
    """AMD GPUs. Each is leased by index, and only leased GPUs are visible to a run. Here, `nccl` means RCCL."""

    accelerator = "cuda"
    aliases = ("gpu", "rocm", "hip")
    unit, units, site_units = "GPU", "GPUs", "CUDA devices"
    own_memory = True
    scheduled_as_gpu = True
    auto_priority = 1
    environment_prefixes = (*VISIBILITY_VARIABLES, "ROCR_VISIBLE_DEVICES")
    telemetry = AmdSmiTelemetry()
    distributed_backend = "nccl"
    known_to_lightning = True
    profiler_activity_name = "CUDA"

    def gpus(self) -> tuple[Gpu, ...]:
        """Return the devices that HIP makes visible to this process.

        As in CUDA, the first unknown index ends the list.
        """
        machine = machine_gpus()
        variable = next((os.environ[name] for name in VISIBILITY_VARIABLES if name in os.environ), None)
        if variable is None:
            return machine
        gpus: list[Gpu] = []
        for name in (part.strip() for part in variable.split(",")):
            if not name.isdigit() or int(name) >= len(machine) or machine[int(name)] in gpus:
                break
            gpus.append(machine[int(name)])
        return tuple(gpus)

    @contextmanager
    def telemetry_session(self) -> Iterator[None]:
        """Keep AMD SMI initialised, if it can be."""
        with ExitStack() as stack:
            with suppress(AmdSmiUnavailable):
                stack.enter_context(amdsmi())
            yield

    def visibility_variables(self, names: Sequence[str]) -> dict[str, str]:
        """Return the environment variables that restrict a process to these devices of this kind."""
        return dict.fromkeys(VISIBILITY_VARIABLES, ",".join(names))

    def fingerprint(self) -> dict[str, str]:
        """Return the machine's device models as `device`, and the `driver`; empty if there are no devices."""
        models = sorted({gpu.model for gpu in machine_gpus()})
        try:
            with amdsmi() as library:
                handles = _ask(library.amdsmi_get_processor_handles)
                driver = str(_ask(library.amdsmi_get_gpu_driver_info, handles[0])["driver_version"]) if handles else ""
        except AmdSmiUnavailable:
            return {}
        return {"device": ", ".join(models), "driver": driver} if models else {}

    def unsupported_precision(self, precision: str) -> str | None:
        """Return why AMD GPUs do not support `precision`."""
        if precision.startswith("transformer-engine"):
            return f"{precision} needs cuda: NVIDIA's Transformer Engine has no ROCm backend"
        return None

    def unavailable_reason(self) -> str | None:
        """Return why torch detects no device."""
        import torch

        if torch.cuda.is_available():
            return None
        return f"finds no AMD GPU here: it was built for ROCm {torch.version.hip}; amd-smi may show why"

    def telemetry_identity(self, device: torch.device) -> str:
        """Return the PCI address in AMD SMI's notation; AMD SMI does not support HIP's UUIDs."""
        properties = self.module.get_device_properties(device)
        return f"{properties.pci_domain_id:04x}:{properties.pci_bus_id:02x}:{properties.pci_device_id:02x}.0"


KIND = RocmKind() if torch_is_built_for_rocm() else None


def machine_gpus() -> tuple[Gpu, ...]:
    """Return the machine's devices in AMD SMI's order; empty if there is no driver."""
    try:
        with amdsmi() as library:
            handles = _ask(library.amdsmi_get_processor_handles)
            return tuple(_gpu(library, index, handle) for index, handle in enumerate(handles))
    except AmdSmiUnavailable:
        return ()


def _gpu(library: Any, index: int, handle: Any) -> Gpu:
    model = str(_ask(library.amdsmi_get_gpu_asic_info, handle)["market_name"])
    memory = _or_none(library.amdsmi_get_gpu_memory_total, handle, library.AmdSmiMemoryType.VRAM)
    return Gpu(str(index), _pci_address(library, handle), model, None if memory is None else int(memory))
