"""AMD's GPUs, which a ROCm build of torch calls `cuda`. Configs call them so too.

HIP_VISIBLE_DEVICES hides them: https://rocm.docs.amd.com/en/latest/conceptual/gpu-isolation.html. It takes indices, and
it has precedence over CUDA_VISIBLE_DEVICES, which HIP reads as well. ROCR_VISIBLE_DEVICES filters before both; indices
count the devices that it leaves. Where it is set, nothing is leased by name here.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from importlib import metadata

from accelsweep.core.sites.device import Device
from accelsweep.machine.drivers.amdsmi import AmdSmiTelemetry, NoAmdSmi, address, amdsmi, ask, model, total_bytes
from accelsweep.machine.drivers.telemetry import KnownDevice, Telemetry
from accelsweep.machine.precisions import not_nvidia

HIP_VARIABLE, OTHERS = "HIP_VISIBLE_DEVICES", ("CUDA_VISIBLE_DEVICES",)


@dataclass(frozen=True)
class AmdGpu:
    """An AMD GPU: its index as HIP counts, its PCI address, its model, and its memory where that is told."""

    index: int
    address: str
    model: str
    memory_bytes: int | None


@dataclass(frozen=True)
class RocmKind:
    """AMD's GPUs as a kind of device: each is leased by its index, and a run sees only its own."""

    accelerator: str = "cuda"
    most: int | None = None
    telemetry: Telemetry = field(default_factory=AmdSmiTelemetry)

    def inventory(self) -> tuple[Device, ...]:
        """Return the visible devices, grouped by model and memory."""
        alike = Counter((gpu.model, gpu.memory_bytes) for gpu in visible_gpus())
        return tuple(
            Device(accelerator="cuda", model=name, count=count, memory_bytes=memory)
            for (name, memory), count in alike.items()
        )

    def named(self) -> dict[str, str]:
        """Return the visible devices: the index for HIP_VISIBLE_DEVICES, and the PCI address."""
        return {str(gpu.index): gpu.address for gpu in visible_gpus()}

    def models(self) -> dict[str, str]:
        """Return the models of the visible devices, by the names of `named`."""
        return {str(gpu.index): gpu.model for gpu in visible_gpus()}

    def variables(self, names: Sequence[str]) -> dict[str, str]:
        """Return the variables that show a process these devices and no other of this kind."""
        shown = ",".join(names)
        return {HIP_VARIABLE: shown, **dict.fromkeys(OTHERS, shown)}

    def hardware(self) -> dict[str, str]:
        """Return the models of all the machine's devices as `device`, and the `driver`; empty where there are none."""
        models = sorted({gpu.model for gpu in gpus()})
        try:
            with amdsmi() as library:
                handles = ask(library.amdsmi_get_processor_handles)
                driver = str(ask(library.amdsmi_get_gpu_driver_info, handles[0])["driver_version"]) if handles else ""
        except NoAmdSmi:
            return {}
        return {"device": ", ".join(models), "driver": driver} if models else {}

    def watched(self) -> tuple[KnownDevice, ...]:
        """Return the visible devices."""
        return tuple(KnownDevice(self.accelerator, gpu.address, gpu.model) for gpu in visible_gpus())

    def refuses(self, precision: str) -> str | None:
        """Return why an AMD GPU cannot have a precision; None where nothing speaks against it."""
        return not_nvidia(precision, "ROCm")


def rocm_torch() -> bool:
    """Return whether the installed torch is a build for ROCm, judged by its version's tag."""
    try:
        return "+rocm" in metadata.version("torch")
    except metadata.PackageNotFoundError:
        return False


def gpus() -> tuple[AmdGpu, ...]:
    """Return the machine's devices in AMD SMI's order; none without a driver."""
    try:
        with amdsmi() as library:
            handles = ask(library.amdsmi_get_processor_handles)
            return tuple(
                AmdGpu(index, address(library, handle), model(library, handle), _memory(library, handle))
                for index, handle in enumerate(handles)
            )
    except NoAmdSmi:
        return ()


def _memory(library: object, handle: object) -> int | None:
    try:
        return total_bytes(library, handle)
    except NoAmdSmi:
        return None


def visible_gpus() -> tuple[AmdGpu, ...]:
    """Return the devices that HIP shows to this process. As in CUDA, the first unknown index ends the list."""
    machine = gpus()
    variable = next((os.environ[name] for name in (HIP_VARIABLE, *OTHERS) if name in os.environ), None)
    if variable is None:
        return machine
    found: list[AmdGpu] = []
    for name in (part.strip() for part in variable.split(",")):
        if not name.isdigit() or int(name) >= len(machine) or machine[int(name)] in found:
            break
        found.append(machine[int(name)])
    return tuple(found)
