"""The host's processor as torch drives it: every operation is done when its call returns."""

from __future__ import annotations

import torch
from torch.profiler import ProfilerActivity

from accelsweep.machine.cpu import cpu_model
from accelsweep.machine.room import FreeMemory
from accelsweep.measure.clock import Clock, ClockMarks, Marks
from accelsweep.measure.devices.bounds import HostBound
from accelsweep.measure.devices.interface import DeviceMemory


class CpuDevice:
    """The host. Nothing to wait for."""

    asynchronous = False

    def synchronise(self) -> None:
        """Return at once: an operation on a CPU is done when its call returns."""

    def marks(self, clock: Clock) -> Marks:
        """Begin marks on the host's clock."""
        return ClockMarks(clock)


class TorchCpu:
    """The processor. Its ranks share its cores and its memory."""

    collectives, pins, tf32, known_to_lightning = "gloo", False, False, True
    profiler_activity = ProfilerActivity.CPU

    def absent(self) -> None:
        """Return None: there always is one."""

    def initialised(self) -> bool:
        """Return False: a processor has no state of its own that a fork would break."""
        return False

    def of_rank(self, local_rank: int) -> torch.device:
        """Return the processor: all ranks have the same."""
        del local_rank
        return torch.device("cpu")

    def waited(self, device: torch.device) -> CpuDevice:
        """Return the host."""
        del device
        return CpuDevice()

    def model(self, device: torch.device) -> str:
        """Return the processor's name."""
        del device
        return cpu_model()

    def identity(self, device: torch.device) -> None:
        """Return None: the processor's state is read with its host's."""

    def allocated_bytes(self, device: torch.device) -> None:
        """Return None: the host's memory is read as the host's."""

    def memory(self, device: torch.device) -> DeviceMemory:
        """Return reasons."""
        del device
        why = "a CPU has no device allocator; see host_pss_bytes"
        return DeviceMemory(None, None, None, dict.fromkeys(("allocated", "reserved", "device"), why))

    def release(self, device: torch.device) -> None:
        """Do nothing: freed memory is the host's again."""

    def bound(self, device: torch.device, headroom: float, stated: int | None, host: FreeMemory) -> HostBound:
        """Bound the data of this process: a CPU has no allocator of its own. `stated` is in `host` already."""
        del device, stated
        return HostBound(host, headroom)
