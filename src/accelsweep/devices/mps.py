"""Apple's GPU. It shares the host's memory, and its allocator keeps no peak."""

from __future__ import annotations

import platform
from typing import TYPE_CHECKING

from accelsweep.devices.backend import DeviceKind, DeviceMemory, EventMarks
from accelsweep.devices.clock import Clock, Marks
from accelsweep.devices.cpu import cpu_model, memory_bytes
from accelsweep.devices.kinds import Device
from accelsweep.devices.memory_limits import FreeMemory

if TYPE_CHECKING:
    import torch


# The GPU of an Apple-silicon Mac. There is one, and it shares the processor's memory.


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


# A bound on the memory of Apple's GPU that this process may take.


class MetalBound:
    """A bound on the allocator for Apple's GPU, which keeps no peak. Never run on hardware (docs/devices.md)."""

    def __init__(self, headroom: float, stated: int | None) -> None:
        """`headroom` is the share of the working set that stays free; `stated` is a bound of the config's, in bytes."""
        import torch

        total = int(torch.mps.recommended_max_memory())
        room = FreeMemory(total, "device memory")
        if stated is not None:
            room = min(room, FreeMemory(stated, "measure.rank_memory_bytes"))
        self.bytes, self.limit = int(room.bytes * (1 - headroom)), room.limit
        torch.mps.set_per_process_memory_fraction(self.bytes / total)

    def peak(self) -> None:
        """Return None."""


class MpsDevice:
    """Apple's GPU."""

    asynchronous = True

    def synchronise(self) -> None:
        """Wait for all work on the GPU."""
        import torch

        torch.mps.synchronize()

    def marks(self, clock: Clock) -> Marks:
        """Begin marks as MPS events; `clock` is not read."""
        import torch

        del clock
        return EventMarks(torch.mps.Event)


class TorchMps:
    """Apple's GPU: there is one, so its name has no number."""

    collectives, pins, tf32, known_to_lightning = "gloo", False, False, True
    profiler_activity = None

    def absent(self) -> str | None:
        """Return that torch finds none."""
        import torch

        return None if torch.backends.mps.is_available() else "finds no Apple GPU here"

    def initialised(self) -> bool:
        """Return False: processes are not forked on macOS at all."""
        return False

    def of_rank(self, local_rank: int) -> torch.device:
        """Return the only one."""
        import torch

        del local_rank
        return torch.device("mps")

    def waited(self, device: torch.device) -> MpsDevice:
        """Return the GPU with its queue."""
        del device
        return MpsDevice()

    def model(self, device: torch.device) -> str:
        """Return the chip's name."""
        del device
        return mps_model()

    def identity(self, device: torch.device) -> None:
        """Return None: macOS tells its state to root alone."""

    def allocated_bytes(self, device: torch.device) -> int | None:
        """Return what torch's allocator has handed out."""
        import torch

        del device
        return int(torch.mps.current_allocated_memory())

    def memory(self, device: torch.device) -> DeviceMemory:
        """Return what Metal has handed out to this process."""
        import torch

        del device
        driver = torch.mps.driver_allocated_memory()
        reasons = {"allocated": "the MPS allocator keeps no peak", "device": "this process only"}
        return DeviceMemory(None, driver, driver, reasons)

    def release(self, device: torch.device) -> None:
        """Empty the allocator's cache."""
        import torch

        del device
        torch.mps.empty_cache()

    def bound(self, device: torch.device, headroom: float, stated: int | None, host: FreeMemory) -> MetalBound:
        """Bound the allocator."""
        del device, host
        return MetalBound(headroom, stated)
