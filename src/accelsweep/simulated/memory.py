"""The device's allocator: a budget of bytes, and the counters that torch's own allocators keep."""

from __future__ import annotations

from collections.abc import Callable

import torch

from accelsweep.machine.drivers.simulated import Use

GRAIN = 512
"""Sizes are rounded up to this, as CUDA's allocator does it."""
SEGMENT = 2 * 2**20
"""Reserved memory grows by whole segments of this size."""


class Allocator:
    """Counts bytes and gives none: the numbers themselves lie in the host's memory."""

    def __init__(self, total: int, use: Use, others: Callable[[], int] = lambda: 0) -> None:
        """`total` is the device's memory, of which `others` hold a part. `use` shows what is reserved.

        This process may reserve `most` of it: at first, all.
        """
        self.total, self._use, self._others = total, use, others
        self.most = total
        self.allocated = self.reserved = self.peak_allocated = self.peak_reserved = 0

    def take(self, size: int) -> Allocation:
        """Return an allocation of `size` bytes. Raises torch.OutOfMemoryError where the budget has no more room."""
        size = -(-size // GRAIN) * GRAIN
        if self.allocated + size > self.reserved:
            self._reserve_for(self.allocated + size)
        self.allocated += size
        self.peak_allocated = max(self.peak_allocated, self.allocated)
        return Allocation(self, size)

    def give_back(self, size: int) -> None:
        """Take an allocation back; it stays reserved."""
        self.allocated -= size

    def empty_cache(self) -> None:
        """Reserve no more than is allocated."""
        self._reserve(-(-self.allocated // SEGMENT) * SEGMENT)

    def reset_peaks(self) -> None:
        """Begin the peaks anew."""
        self.peak_allocated, self.peak_reserved = self.allocated, self.reserved

    def _reserve_for(self, wanted: int) -> None:
        room = min(self.total - self._others(), self.most)
        if wanted > room:
            raise torch.OutOfMemoryError(
                f"the simulated device is out of memory: {wanted} bytes were to be in use, and it has {room} for us"
            )
        self._reserve(min(-(-wanted // SEGMENT) * SEGMENT, room))

    def _reserve(self, size: int) -> None:
        self.reserved = self._use.bytes = size
        self.peak_reserved = max(self.peak_reserved, size)


class Allocation:
    """Some bytes, until nothing refers to this object any more."""

    def __init__(self, allocator: Allocator, size: int) -> None:
        """`size` is in bytes, rounded already."""
        self._allocator, self._size = allocator, size

    def __del__(self) -> None:
        """Give the bytes back."""
        self._allocator.give_back(self._size)
