"""One kind of device, as this machine tells it without torch. Each kind overrides the answers that it has."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from accelsweep.core.cells.accelerators import Accelerator
from accelsweep.core.sites.device import Device
from accelsweep.machine.drivers.telemetry import KnownDevice, Telemetry
from accelsweep.machine.precisions import not_nvidia


@dataclass(frozen=True)
class Gpu:
    """A device that is handed out by itself: `name` is one that the kind's variable takes.

    `identity` is the same in every process of this machine. `memory_bytes` is None where it is not told.
    """

    name: str
    identity: str
    model: str
    memory_bytes: int | None


class DeviceKind:
    """One kind of device. Every answer is found anew; devices that the process may not use are left out.

    By itself a kind has no devices on this machine, no variables and no state: a site may declare its devices.
    """

    accelerator: Accelerator
    """The word that configs have for this kind."""
    most: int | None = None
    """The most of them that a machine can have; None for any number."""
    telemetry: Telemetry | None = None
    """The source of their state; None where there is none."""
    heeds: tuple[str, ...] = ()
    """Beginnings of the environment variables that its driver heeds. Records keep their values."""

    def gpus(self) -> tuple[Gpu, ...] | None:
        """Return the devices, one by one; None for a kind whose devices are not handed out so."""
        return None

    def inventory(self) -> tuple[Device, ...]:
        """Return the devices of this kind that this process may use, one entry a model; empty where there is none."""
        alike = Counter((gpu.model, gpu.memory_bytes) for gpu in self.gpus() or ())
        return tuple(
            Device(accelerator=self.accelerator, model=model, count=count, memory_bytes=memory)
            for (model, memory), count in alike.items()
        )

    def named(self) -> Mapping[str, str] | None:
        """Return the devices as name -> identity; None for a kind whose devices are not handed out one by one."""
        gpus = self.gpus()
        return None if gpus is None else {gpu.name: gpu.identity for gpu in gpus}

    def models(self) -> Mapping[str, str]:
        """Return the models of the devices that `named` names."""
        return {gpu.name: gpu.model for gpu in self.gpus() or ()}

    def variables(self, names: Sequence[str]) -> Mapping[str, str]:
        """Return the environment variables that show a process the devices with these names, and no other."""
        del names
        return {}

    def hardware(self) -> Mapping[str, str]:
        """Return this kind's part of a fingerprint, beside the host's processor."""
        return {}

    def watched(self) -> tuple[KnownDevice, ...]:
        """Return the devices whose state `telemetry` tells and that this process may use."""
        gpus = () if self.telemetry is None else self.gpus() or ()
        return tuple(KnownDevice(self.accelerator, gpu.identity, gpu.model) for gpu in gpus)

    def refuses(self, precision: str) -> str | None:
        """Return why no device of this kind can have `precision`; None where nothing is known to speak against it."""
        return not_nvidia(precision, self.accelerator)
