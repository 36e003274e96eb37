"""The GPU of an Apple-silicon Mac. There is one, and it shares the processor's memory."""

from __future__ import annotations

import platform
from collections.abc import Sequence
from dataclasses import dataclass

from accelsweep.core.sites.device import Device
from accelsweep.machine.cpu import cpu_model, memory_bytes
from accelsweep.machine.drivers.telemetry import KnownDevice
from accelsweep.machine.precisions import not_nvidia


@dataclass(frozen=True)
class MpsKind:
    """Apple's GPU as a kind of device: one or none; it cannot be hidden, and it is not leased by name."""

    accelerator: str = "mps"
    most: int | None = 1
    telemetry: None = None

    def inventory(self) -> tuple[Device, ...]:
        """Return the GPU, or nothing on any other machine."""
        if (platform.system(), platform.machine()) != ("Darwin", "arm64"):
            return ()
        return (Device(accelerator="mps", model=mps_model(), count=1, memory_bytes=memory_bytes()),)

    def named(self) -> None:
        """Return None: the only one needs no name."""

    def models(self) -> dict[str, str]:
        """Return nothing: the only one needs no name."""
        return {}

    def variables(self, names: Sequence[str]) -> dict[str, str]:
        """Return no variable: none hides Apple's GPU."""
        del names
        return {}

    def hardware(self) -> dict[str, str]:
        """Return nothing: the host's name in the fingerprint identifies this GPU too."""
        return {}

    def watched(self) -> tuple[KnownDevice, ...]:
        """Return nothing: macOS tells the state of the GPU to root alone."""
        return ()

    def refuses(self, precision: str) -> str | None:
        """Return why Apple's GPU cannot have a precision; None where nothing speaks against it."""
        if precision == "64-true":
            return "64-true is impossible on mps: Apple's GPUs have no 64-bit floating point"
        return not_nvidia(precision, self.accelerator)


def mps_model() -> str:
    """Return the GPU's name, in plans and in records alike: the system has one name for the whole chip."""
    return f"{cpu_model()} GPU"
