"""A bound on the memory that this process may take, and the peak that it then reaches, for each kind of device."""

from __future__ import annotations

from typing import Any, Protocol

import torch

from accelsweep.base.errors import Unsupported
from accelsweep.core.recorded.frontier import Limit
from accelsweep.machine.room import FreeMemory, begin_peak, give_back_at_once, own_bytes, take_no_more_than


class Bound(Protocol):
    """A bound in force. `bytes` is what this process may take from now on, by which `limit`."""

    bytes: int
    limit: Limit

    def peak(self) -> int | None:
        """Return the most that it took since, in bytes; None where nothing keeps a peak."""


class HostBound:
    """A bound on the data of this process; the peak is that of its resident set, above what it was."""

    def __init__(self, room: FreeMemory, headroom: float) -> None:
        """`headroom` is the share of `room` that stays free. Raises Unsupported where no process can be bounded."""
        self.bytes, self.limit = int(room.bytes * (1 - headroom)), room.limit
        _start_threads()
        give_back_at_once()
        self._before = begin_peak()
        if not take_no_more_than(self.bytes):
            raise Unsupported("task=memory_frontier on a CPU bounds the memory of a process, which needs Linux")

    def peak(self) -> int:
        """Return how far the resident set rose."""
        return max(0, own_bytes("VmHWM") - self._before)


def _start_threads() -> None:
    """Start torch's threads now: their stacks are no part of a batch, and no thread starts where memory is short."""
    torch.ones(2**20).sum()


class DeviceBound:
    """A bound on torch's allocator for a device; `module` is like `torch.cuda`. The peak is the allocator's."""

    def __init__(self, module: Any, device: torch.device, headroom: float, stated: int | None) -> None:
        """`headroom` is the share of what is free that stays free; `stated` is a bound of the config's, in bytes."""
        free, total = module.mem_get_info(device)
        reserved = module.memory_reserved(device)
        room = FreeMemory(free + reserved, "device memory")
        if stated is not None:
            room = min(room, FreeMemory(stated, "measure.rank_memory_bytes"))
        self.bytes, self.limit = int(room.bytes * (1 - headroom)), room.limit
        self._module, self._device = module, device
        module.set_per_process_memory_fraction(self.bytes / total, device)
        module.reset_peak_memory_stats(device)

    def peak(self) -> int:
        """Return the most that tensors held."""
        return int(self._module.max_memory_allocated(self._device))


class MetalBound:
    """A bound on the allocator for Apple's GPU, which keeps no peak. Never run on hardware (docs/devices.md)."""

    def __init__(self, headroom: float, stated: int | None) -> None:
        """`headroom` is the share of the working set that stays free; `stated` is a bound of the config's, in bytes."""
        total = int(torch.mps.recommended_max_memory())
        room = FreeMemory(total, "device memory")
        if stated is not None:
            room = min(room, FreeMemory(stated, "measure.rank_memory_bytes"))
        self.bytes, self.limit = int(room.bytes * (1 - headroom)), room.limit
        torch.mps.set_per_process_memory_fraction(self.bytes / total)

    def peak(self) -> None:
        """Return None."""
