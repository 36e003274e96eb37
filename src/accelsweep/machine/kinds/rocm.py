"""AMD's GPUs, which a ROCm build of torch calls `cuda`. Configs call them so too.

HIP_VISIBLE_DEVICES hides them: https://rocm.docs.amd.com/en/latest/conceptual/gpu-isolation.html. It takes indices, and
it has precedence over CUDA_VISIBLE_DEVICES, which HIP reads as well. ROCR_VISIBLE_DEVICES filters before both; indices
count the devices that it leaves. Where it is set, nothing is leased by name here.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from importlib import metadata

from accelsweep.machine.drivers.amdsmi import AmdSmiTelemetry, NoAmdSmi, address, amdsmi, ask, model, total_bytes
from accelsweep.machine.kind import DeviceKind, Gpu
from accelsweep.machine.precisions import not_nvidia

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
