"""The kinds of devices that this machine may have, behind one interface. Only this module lists all of them.

Each kind has a file of its own (`cpu`, `cuda`, `mps`). Another kind (XPU, ROCm) is one more file, and its line in
`KINDS`. None of them imports torch or touches a GPU's memory.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from accelsweep.core.settings import Device
from accelsweep.machine.cpu import CpuKind
from accelsweep.machine.cuda import CudaKind
from accelsweep.machine.mps import MpsKind


class DeviceKind(Protocol):
    """One kind of device. Every answer is found anew; devices that the process may not use are left out."""

    @property
    def accelerator(self) -> str:
        """The word that configs have for this kind."""

    def inventory(self) -> tuple[Device, ...]:
        """Return the devices of this kind that this process may use, one entry a model; empty where there is none."""

    def named(self) -> Mapping[str, str] | None:
        """Return the devices as name -> identity; None for a kind whose devices are not handed out one by one.

        `variables` takes the names. An identity is the same in every process of this machine.
        """

    def models(self) -> Mapping[str, str]:
        """Return the models of the devices that `named` names; empty for a kind whose devices are not handed out."""

    def variables(self, names: Sequence[str]) -> Mapping[str, str]:
        """Return the environment variables that show a process the devices with these names, and no other."""

    def hardware(self) -> Mapping[str, str]:
        """Return this kind's part of a fingerprint, beside the host's processor."""


KINDS: tuple[DeviceKind, ...] = (CpuKind(), CudaKind(), MpsKind())


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


def hardware(accelerator: str | None) -> dict[str, str]:
    """Return the devices of this kind as a fingerprint states them; of all kinds for None."""
    kinds = KINDS if accelerator is None else (kind_of(accelerator),)
    return {name: value for kind in kinds for name, value in kind.hardware().items()}
