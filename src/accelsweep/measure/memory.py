"""Measures a run's memory as four numbers, in bytes, and detects memory that grows with every step.

Two are peaks of torch's allocator: memory allocated and memory reserved. The third is the whole device's memory usage,
including other processes and the driver's context. The fourth is the ranks' proportional set size (PSS) on the host,
excluding loader workers, when the window closes; it is not a peak. PSS counts pages shared with a forked parent
proportionally, while `ru_maxrss` would start at the parent's value.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from accelsweep.devices import host
from accelsweep.metrics import Metric
from accelsweep.significant_digits import count_of


@dataclass(frozen=True)
class RankMemory:
    """One rank's memory; a missing number is None, and `reasons` explains why."""

    allocated: int | None
    reserved: int | None
    device: int | None
    pss: int | None
    reasons: dict[str, str]


def rank_memory(device: Any) -> RankMemory:
    """Read the memory of this rank; `device` is a torch.device. Peaks cover the time since the process started."""
    from accelsweep.devices.kinds import kind_of

    pss, reasons = None, {}
    try:
        pss = host.proportional_set_size()
    except OSError as error:
        reasons["pss"] = f"the system reports no proportional set size ({type(error).__name__})"
    memory = kind_of(device.type).memory(device)
    return RankMemory(memory.allocated, memory.reserved, memory.device, pss, reasons | memory.reasons)


class ClosingMemory:
    """A probe that reads a rank's memory when the window closes: the loop's teardown frees most of it soon after."""

    def __init__(self, device: Any) -> None:
        """`device` is a torch.device."""
        self._device = device
        self.reading: RankMemory | None = None

    def start(self) -> None:
        """Do nothing when the window opens."""

    def stop(self) -> None:
        """Read the memory when the window closes."""
        self.reading = rank_memory(self._device)


def memory_metrics(ranks: list[RankMemory]) -> dict[str, Metric]:
    """Return each device memory figure from the rank where it is highest, and the sum of all ranks' host memory."""
    scope = "one device, the fullest"
    return {
        "peak_memory_reserved_bytes": _fullest(ranks, "reserved", scope),
        "peak_memory_allocated_bytes": _fullest(ranks, "allocated", scope),
        "device_memory_used_bytes": _fullest(ranks, "device", "the whole device, all processes"),
        "host_pss_bytes": _host(ranks),
    }


def _fullest(ranks: list[RankMemory], name: str, scope: str) -> Metric:
    values = [getattr(rank, name) for rank in ranks]
    if any(value is None for value in values):
        return Metric(value=None, unit="B", reason=ranks[0].reasons.get(name, "not read"), scope=scope)
    return Metric(value=float(max(values)), unit="B", scope=scope, provenance="counter")


def _host(ranks: list[RankMemory]) -> Metric:
    scope = "all ranks without loader workers, when the window closed"
    values = [rank.pss for rank in ranks if rank.pss is not None]
    if len(values) < len(ranks):
        reason = next(rank.reasons["pss"] for rank in ranks if rank.pss is None)
        return Metric(value=None, unit="B", reason=reason, scope=scope)
    return Metric(value=float(sum(values)), unit="B", scope=scope, provenance="counter")


def parameter_bytes(module: Any) -> int:
    """Return the number of bytes that a torch module's parameters occupy on this rank between steps.

    For a sharded parameter only the local shard counts. Shared storage counts once.
    """
    storages = [
        (parameter.to_local() if hasattr(parameter, "to_local") else parameter).untyped_storage()
        for parameter in module.parameters()
    ]
    return sum({storage._cdata: storage.nbytes() for storage in storages}.values())


def shard_metric(ranks: list[int]) -> dict[str, Metric]:
    """Return `rank_parameter_bytes`, given every rank's `parameter_bytes`."""
    scope = f"the fullest of {count_of(len(ranks), 'rank')}; all ranks together store {sum(ranks)}"
    return {"rank_parameter_bytes": Metric(value=float(max(ranks)), unit="B", scope=scope, provenance="counted")}


WINDOW_PARTS = 6
"""The number of parts into which the window is divided; memory is sampled between them.

Windows with fewer optimiser steps are not checked.
"""

MIN_RELATIVE_RATE = 0.5
"""To count as growing, memory must grow in each part at no less than this share of the average rate."""

MIN_BYTES = 16 * 2**20

MIN_GROWTH_SHARE = 0.01
"""The minimum growth, in bytes and as a share of the memory when the window opened."""

OWN_BYTES_PER_STEP = 4096
"""Growth per step that our own bookkeeping may cause: each step's times, losses and device events."""

MemorySample = tuple[int, int]
"""The number of steps since the window opened, and the bytes."""


def part_ends(steps: int, multiple_of: int) -> list[int]:
    """Return the steps after which each part of the window ends, except the last part.

    Each part consists of whole optimiser steps of `multiple_of` batches, because gradients are allocated and freed
    within a step.
    """
    updates = steps // multiple_of
    if updates < WINDOW_PARTS:
        return []
    return [updates * part // WINDOW_PARTS * multiple_of for part in range(1, WINDOW_PARTS)]


def growth(samples: Sequence[MemorySample]) -> int | None:
    """Return the bytes by which memory grew from first to last sample; None if growth was too small or not steady."""
    if len(samples) <= WINDOW_PARTS:
        return None
    (begin, before), (end, after) = samples[0], samples[-1]
    steps, grown = end - begin, after - before
    if grown < max(MIN_BYTES, MIN_GROWTH_SHARE * before, OWN_BYTES_PER_STEP * steps):
        return None
    rates = [(more - less) / (later - earlier) for (earlier, less), (later, more) in pairwise(samples)]
    return grown if min(rates) >= MIN_RELATIVE_RATE * grown / steps else None


class MemoryWatch:
    """Samples a rank's memory during the window."""

    def __init__(self, readers: Mapping[str, Callable[[], int]]) -> None:
        """`readers` maps the name of each kind of memory to a function that reads it in bytes."""
        self._readers = readers
        self._samples: dict[str, list[MemorySample]] = {name: [] for name in readers}

    def sample(self, step: int) -> None:
        """Sample all kinds of memory, `step` steps after the window opened."""
        for name, read in self._readers.items():
            self._samples[name].append((step, read()))

    def growth(self) -> dict[str, tuple[int, int]]:
        """Return the growth, in bytes, and the number of steps for each memory kind that grew throughout the window."""
        grown = {name: growth(samples) for name, samples in self._samples.items()}
        return {name: (more, self._samples[name][-1][0]) for name, more in grown.items() if more is not None}


def memory_readers(device: Any) -> dict[str, Callable[[], int]]:
    """Return functions that read the private memory of a rank on `device`, a torch.device.

    On the host, file pages and shared memory grow as data is read, so they are excluded if the system reports them
    (Linux). On the device, private memory is what torch has allocated, which can be read without a synchronisation.
    """
    from accelsweep.devices.kinds import kind_of

    readers: dict[str, Callable[[], int]] = {"the host": host.private_bytes}
    kind = kind_of(device.type)
    if kind.allocated_bytes(device) is not None:
        readers["the device"] = lambda: kind.allocated_bytes(device) or 0
    return readers
