"""The GPU of an Apple-silicon Mac. There is one, and it shares the processor's memory."""

from __future__ import annotations

import platform

from accelsweep.core.sites.device import Device
from accelsweep.machine.cpu import cpu_model, memory_bytes
from accelsweep.machine.kind import DeviceKind


class MpsKind(DeviceKind):
    """Apple's GPU as a kind of device: one or none. It cannot be hidden, and the only one needs no name.

    The host's name in the fingerprint identifies it too. macOS tells its state to root alone.
    """

    accelerator, most = "mps", 1

    def inventory(self) -> tuple[Device, ...]:
        """Return the GPU, or nothing on any other machine."""
        if (platform.system(), platform.machine()) != ("Darwin", "arm64"):
            return ()
        return (Device(accelerator="mps", model=mps_model(), count=1, memory_bytes=memory_bytes()),)

    def refuses(self, precision: str) -> str | None:
        """Return why Apple's GPU cannot have a precision; None where nothing speaks against it."""
        if precision == "64-true":
            return "64-true is impossible on mps: Apple's GPUs have no 64-bit floating point"
        return super().refuses(precision)


def mps_model() -> str:
    """Return the GPU's name, in plans and in records alike: the system has one name for the whole chip."""
    return f"{cpu_model()} GPU"
