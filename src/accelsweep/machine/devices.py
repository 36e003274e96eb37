"""The kinds of devices that this machine may have, behind one interface. Only this module lists all of them.

Each kind has a file of its own (`cpu`, `cuda`, `rocm`, `xpu`, `mps`, `simulated`) and the base in `kind`. Another kind
is one more file, and its line in `KINDS`. None of them imports torch or touches a GPU's memory. `measure.devices` has
torch's side of a kind.
"""

from __future__ import annotations

from collections.abc import Sequence

from accelsweep.core.sites.device import Device
from accelsweep.machine.cpu import CpuKind
from accelsweep.machine.drivers.telemetry import KnownDevice, NoReading, Telemetry
from accelsweep.machine.kind import DeviceKind
from accelsweep.machine.kinds.cuda import CudaKind
from accelsweep.machine.kinds.mps import MpsKind
from accelsweep.machine.kinds.rocm import RocmKind, rocm_torch
from accelsweep.machine.kinds.simulated import SimulatedKind
from accelsweep.machine.kinds.xpu import XpuKind

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
