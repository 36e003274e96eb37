"""AMD's GPUs, which a ROCm build of torch calls `cuda`. Configs call them so too.

HIP_VISIBLE_DEVICES hides them: https://rocm.docs.amd.com/en/latest/conceptual/gpu-isolation.html. It takes indices, and
it has precedence over CUDA_VISIBLE_DEVICES, which HIP reads as well. ROCR_VISIBLE_DEVICES filters before both; indices
count the devices that it leaves. Where it is set, nothing is leased by name here.
"""

from __future__ import annotations

import importlib
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib import metadata
from typing import TYPE_CHECKING, Any

from accelsweep.devices.backend import DeviceKind, Gpu, NoReading, foreign, not_nvidia
from accelsweep.devices.cuda import TorchCuda

if TYPE_CHECKING:
    import torch


# AMD's management library, which comes with ROCm: the facts and the state of an AMD GPU.

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


HIP_VARIABLE, OTHERS = "HIP_VISIBLE_DEVICES", ("CUDA_VISIBLE_DEVICES",)


class RocmKind(DeviceKind):
    """AMD's GPUs as a kind of device: each is leased by its index, and a run sees only its own."""

    accelerator, telemetry, heeds = "cuda", AmdSmiTelemetry(), (HIP_VARIABLE, *OTHERS, "ROCR_VISIBLE_DEVICES")

    def gpus(self) -> tuple[Gpu, ...]:
        """Return the visible devices: the index for HIP_VISIBLE_DEVICES, and the PCI address."""
        return visible_gpus()

    def variables(self, names: Sequence[str]) -> dict[str, str]:
        """Return the variables that show a process these devices and no other of this kind."""
        shown = ",".join(names)
        return {HIP_VARIABLE: shown, **dict.fromkeys(OTHERS, shown)}

    def hardware(self) -> dict[str, str]:
        """Return the models of all the machine's devices as `device`, and the `driver`; empty where there are none."""
        models = sorted({gpu.model for gpu in machine_gpus()})
        try:
            with amdsmi() as library:
                handles = ask(library.amdsmi_get_processor_handles)
                driver = str(ask(library.amdsmi_get_gpu_driver_info, handles[0])["driver_version"]) if handles else ""
        except NoAmdSmi:
            return {}
        return {"device": ", ".join(models), "driver": driver} if models else {}

    def refuses(self, precision: str) -> str | None:
        """Return why an AMD GPU cannot have a precision; None where nothing speaks against it."""
        return not_nvidia(precision, "ROCm")


def rocm_torch() -> bool:
    """Return whether the installed torch is a build for ROCm, judged by its version's tag."""
    try:
        return "+rocm" in metadata.version("torch")
    except metadata.PackageNotFoundError:
        return False


def machine_gpus() -> tuple[Gpu, ...]:
    """Return the machine's devices in AMD SMI's order; none without a driver."""
    try:
        with amdsmi() as library:
            handles = ask(library.amdsmi_get_processor_handles)
            return tuple(
                Gpu(str(index), address(library, handle), model(library, handle), _memory(library, handle))
                for index, handle in enumerate(handles)
            )
    except NoAmdSmi:
        return ()


def _memory(library: object, handle: object) -> int | None:
    try:
        return total_bytes(library, handle)
    except NoAmdSmi:
        return None


def visible_gpus() -> tuple[Gpu, ...]:
    """Return the devices that HIP shows to this process. As in CUDA, the first unknown index ends the list."""
    machine = machine_gpus()
    variable = next((os.environ[name] for name in (HIP_VARIABLE, *OTHERS) if name in os.environ), None)
    if variable is None:
        return machine
    found: list[Gpu] = []
    for name in (part.strip() for part in variable.split(",")):
        if not name.isdigit() or int(name) >= len(machine) or machine[int(name)] in found:
            break
        found.append(machine[int(name)])
    return tuple(found)


# AMD's devices as torch drives them: a ROCm build of torch calls them `cuda`.


class TorchRocm(TorchCuda):
    """AMD's devices. HIP's UUIDs are in no form that AMD SMI knows, so they are found by their PCI address."""

    tf32 = False

    def absent(self) -> str | None:
        """Return why torch finds no device."""
        import torch

        if torch.cuda.is_available():
            return None
        return f"finds no AMD GPU here: it was built for ROCm {torch.version.hip}; amd-smi may say more"

    def identity(self, device: torch.device) -> str | None:
        """Return the PCI address, as AMD SMI writes it."""
        import torch

        seen: Any = torch.cuda.get_device_properties(device)
        return f"{seen.pci_domain_id:04x}:{seen.pci_bus_id:02x}:{seen.pci_device_id:02x}.0"
