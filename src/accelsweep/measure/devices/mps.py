"""Apple's GPU. It shares the host's memory, and its allocator keeps no peak."""

from __future__ import annotations

import torch

from accelsweep.machine.kinds.mps import mps_model
from accelsweep.machine.room import FreeMemory
from accelsweep.measure.clock import Clock, Marks
from accelsweep.measure.devices.bounds import MetalBound
from accelsweep.measure.devices.interface import DeviceMemory, EventMarks


class MpsDevice:
    """Apple's GPU."""

    asynchronous = True

    def synchronise(self) -> None:
        """Wait for all work on the GPU."""
        torch.mps.synchronize()

    def marks(self, clock: Clock) -> Marks:
        """Begin marks as MPS events; `clock` is not read."""
        del clock
        return EventMarks(torch.mps.Event)


class TorchMps:
    """Apple's GPU: there is one, so its name has no number."""

    collectives, pins, tf32, known_to_lightning = "gloo", False, False, True
    profiler_activity = None

    def absent(self) -> str | None:
        """Return that torch finds none."""
        return None if torch.backends.mps.is_available() else "finds no Apple GPU here"

    def initialised(self) -> bool:
        """Return False: processes are not forked on macOS at all."""
        return False

    def of_rank(self, local_rank: int) -> torch.device:
        """Return the only one."""
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
        del device
        return int(torch.mps.current_allocated_memory())

    def memory(self, device: torch.device) -> DeviceMemory:
        """Return what Metal has handed out to this process."""
        del device
        driver = torch.mps.driver_allocated_memory()
        reasons = {"allocated": "the MPS allocator keeps no peak", "device": "this process only"}
        return DeviceMemory(None, driver, driver, reasons)

    def release(self, device: torch.device) -> None:
        """Empty the allocator's cache."""
        del device
        torch.mps.empty_cache()

    def bound(self, device: torch.device, headroom: float, stated: int | None, host: FreeMemory) -> MetalBound:
        """Bound the allocator."""
        del device, host
        return MetalBound(headroom, stated)
