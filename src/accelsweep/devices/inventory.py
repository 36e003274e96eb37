"""The kinds of devices that this machine may have, behind one interface. Only this module lists all of them.

Each kind has a file of its own (`cpu`, `cuda`, `rocm`, `xpu`, `mps`), the simulated one has two in `testing`, and
`interface` has the bases. Another kind is one more file, its line in `KINDS`, and one in `kinds` for torch's side. None
of them imports torch or touches a GPU's memory when it is imported.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import TYPE_CHECKING

from accelsweep.devices.backend import DeviceKind, KnownDevice, NoReading, Telemetry, TorchKind
from accelsweep.devices.clock import WaitedDevice
from accelsweep.devices.cpu import CpuKind, TorchCpu
from accelsweep.devices.cuda import CudaKind, TorchCuda
from accelsweep.devices.kinds import Device
from accelsweep.devices.mps import MpsKind, TorchMps
from accelsweep.devices.rocm import RocmKind, TorchRocm, rocm_torch
from accelsweep.devices.xpu import TorchXpu, XpuKind
from accelsweep.testing.simulated_device import SimulatedKind

if TYPE_CHECKING:
    import torch

KINDS: tuple[DeviceKind, ...] = (
    CpuKind(),
    RocmKind() if rocm_torch() else CudaKind(),
    XpuKind(),
    MpsKind(),
    SimulatedKind(),
)
"""A build of torch is for NVIDIA's devices or for AMD's, and both are its `cuda`."""


def kind_of(accelerator: str) -> DeviceKind:
    """Return the kind that configs call `accelerator`; raise ValueError that lists the known ones if there is none."""
    for kind in KINDS:
        if kind.accelerator == accelerator:
            return kind
    known = ", ".join(kind.accelerator for kind in KINDS)
    raise ValueError(f"no kind of device is called {accelerator!r}; known are {known}")


def inventory() -> tuple[Device, ...]:
    """Return all that this process may use of this machine: the processor first, then GPUs.

    Asked only for `site.probe: true` (the site `local`); every other site declares its inventory.
    """
    return tuple(device for kind in KINDS for device in kind.inventory())


def variables(accelerator: str, names: Sequence[str]) -> dict[str, str]:
    """Return the variables that show a run the devices `names` of its kind, and none of any other kind."""
    shown: dict[str, str] = {}
    for kind in KINDS:
        shown |= kind.variables(names if kind.accelerator == accelerator else ())
    return shown


def heeded() -> tuple[str, ...]:
    """Return the beginnings of the environment variables that the drivers of this machine's kinds heed."""
    return tuple(beginning for kind in KINDS for beginning in kind.heeds)


def hardware(accelerator: str | None) -> dict[str, str]:
    """Return the devices of this kind as a fingerprint states them; of all kinds for None."""
    kinds = KINDS if accelerator is None else (kind_of(accelerator),)
    return {name: value for kind in kinds for name, value in kind.hardware().items()}


def watched() -> tuple[KnownDevice, ...]:
    """Return every device of this machine that can be asked for its state and that this process may use."""
    return tuple(device for kind in KINDS for device in kind.watched())


def telemetry_of(accelerator: str) -> Telemetry:
    """Return what tells the state of this kind's devices. Raises NoReading where nothing does."""
    found = kind_of(accelerator).telemetry
    if found is None:
        raise NoReading(f"no state is read of a {accelerator} device")
    return found


# NVIDIA's devices and, with a ROCm build of torch, AMD's: torch calls both `cuda`.


def cuda_kind() -> TorchCuda:
    """Return the kind that this build of torch is for."""
    import torch

    return TorchCuda() if torch.version.hip is None else TorchRocm()


# The choice among the kinds of device on torch's side. Only this module lists all of them.


@cache
def kinds() -> dict[str, TorchKind]:
    """Return every kind by its name in configs, which is torch's name for the type of device."""
    from accelsweep.testing.simulated_torch import TorchSimulated

    found: dict[str, TorchKind] = {"cpu": TorchCpu(), "cuda": cuda_kind(), "xpu": TorchXpu(), "mps": TorchMps()}
    found["simulated"] = TorchSimulated()
    return found


def torch_kind(name: str) -> TorchKind:
    """Return the kind of this name. Raises ValueError that lists the known ones if there is none."""
    if name not in kinds():
        raise ValueError(f"no way to drive a device of type {name!r}; known are {', '.join(kinds())}")
    return kinds()[name]


def measured_device(device: torch.device) -> WaitedDevice:
    """Return `device` as the window uses it. Raises ValueError for a type that nothing here can wait for."""
    return torch_kind(device.type).waited(device)


def device_name(device: torch.device) -> str:
    """Return the model of `device` as its maker calls it; the processor's name for a CPU."""
    return torch_kind(device.type).model(device)
