"""The choice among the kinds of device on torch's side. Only this module lists all of them."""

from __future__ import annotations

from functools import cache

import torch

from accelsweep.measure.clock import WaitedDevice
from accelsweep.measure.devices.cpu import TorchCpu
from accelsweep.measure.devices.cuda import cuda_kind
from accelsweep.measure.devices.interface import TorchKind
from accelsweep.measure.devices.mps import TorchMps
from accelsweep.measure.devices.simulated import TorchSimulated
from accelsweep.measure.devices.xpu import TorchXpu


@cache
def kinds() -> dict[str, TorchKind]:
    """Return every kind by its name in configs, which is torch's name for the type of device."""
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
