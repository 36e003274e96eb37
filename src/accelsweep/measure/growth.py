"""Memory that grows with every step of the window, as where a module keeps something of each step.

Memory that fills once must not count: an allocator that warms up, a heap that is torn into pieces, a cache. All these
grow less and less, or by a jump. So the window has `WINDOW_PARTS` parts, and each must grow about as fast as the whole.

Memory is read at the ends of the parts only. A reading takes about 20 us, so five of them in a window of a second are
a ten-thousandth of it. A step without a reading costs nothing more.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from typing import Any

import psutil

WINDOW_PARTS = 6
"""Parts of the window. A window of fewer optimiser steps is not judged."""
EVEN = 0.5
"""Each part must grow at least at this share of the whole window's pace."""
LEAST_BYTES = 16 * 2**20
LEAST_GROWTH_SHARE = 0.01
"""Less growth is no doubt: an amount, and a share of what was held as the window opened."""
NOTES_BYTES = 4096
"""Growth per step that may be our own: the times, losses and device events that we keep of each step."""

HeldAfter = tuple[int, int]
"""Steps since the window opened, and the bytes that were held then."""


def part_ends(steps: int, multiple_of: int) -> list[int]:
    """Return after which steps a part of the window ends, the window's own end left out.

    Parts have whole optimiser steps of `multiple_of` batches, because gradients come and go within one.
    """
    turns = steps // multiple_of
    return (
        [turns * part // WINDOW_PARTS * multiple_of for part in range(1, WINDOW_PARTS)] if turns >= WINDOW_PARTS else []
    )


def growth(readings: Sequence[HeldAfter]) -> int | None:
    """Return by how many bytes memory grew from first to last reading; None if not throughout, or too little."""
    if len(readings) <= WINDOW_PARTS:
        return None
    (begin, before), (end, after) = readings[0], readings[-1]
    steps, grown = end - begin, after - before
    if grown < max(LEAST_BYTES, LEAST_GROWTH_SHARE * before, NOTES_BYTES * steps):
        return None
    paces = [(more - less) / (later - earlier) for (earlier, less), (later, more) in pairwise(readings)]
    return grown if min(paces) >= EVEN * grown / steps else None


class MemoryWatch:
    """Reads a rank's memory now and then. `kinds` maps the name of each kind of memory to what reads it (bytes)."""

    def __init__(self, kinds: Mapping[str, Callable[[], int]]) -> None:
        """Nothing is read yet."""
        self._kinds = kinds
        self._readings: dict[str, list[HeldAfter]] = {name: [] for name in kinds}

    def look(self, step: int) -> None:
        """Read all kinds, `step` steps after the window opened."""
        for name, read in self._kinds.items():
            self._readings[name].append((step, read()))

    def grown(self) -> dict[str, tuple[int, int]]:
        """Return the bytes and the steps of each kind of memory that grew throughout the window."""
        found = {name: growth(readings) for name, readings in self._readings.items()}
        return {name: (more, self._readings[name][-1][0]) for name, more in found.items() if more is not None}


def kinds_of(device: Any) -> dict[str, Callable[[], int]]:
    """Return how to read the memory that a rank on `device`, a torch.device, holds for itself.

    On the host, pages of files and memory shared with others grow as data is read. They are left out where the system
    tells them (Linux). A device's is what torch's allocator has handed out, which does not wait for the device.
    """
    from accelsweep.measure.devices.kinds import torch_kind

    kinds: dict[str, Callable[[], int]] = {"the host": _private_bytes}
    kind = torch_kind(device.type)
    if kind.allocated_bytes(device) is not None:
        kinds["the device"] = lambda: kind.allocated_bytes(device) or 0
    return kinds


def _private_bytes() -> int:
    held = psutil.Process().memory_info()
    return int(held.rss - getattr(held, "shared", 0))
