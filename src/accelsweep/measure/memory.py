"""Memory in four different numbers, all in bytes.

Two are peaks of torch's allocator: the memory that it handed out, and the memory that it reserved. The third is the use
of the whole device. It includes other processes and the driver's own context. The fourth is the host's proportional set
size (PSS). In PSS, pages shared with a forked parent count by their share; `ru_maxrss` would start at the parent's. The
host's number is no peak. It is that of the ranks' own processes as the window closes, without the processes that load
data.
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
    """One rank's memory. A missing number is None, with its reason in `reasons`."""

    allocated: int | None
    reserved: int | None
    device: int | None
    pss: int | None
    reasons: dict[str, str]


def rank_memory(device: Any) -> RankMemory:
    """Read the memory of this rank; `device` is a torch.device. Peaks are since the process began."""
    from accelsweep.devices.kinds import kind_of

    reasons: dict[str, str] = {}
    pss = _pss(reasons)
    seen = kind_of(device.type).memory(device)
    return RankMemory(seen.allocated, seen.reserved, seen.device, pss, reasons | seen.reasons)


def _pss(reasons: dict[str, str]) -> int | None:
    try:
        return host.proportional_set_size()
    except OSError as error:
        reasons["pss"] = f"the system shows no proportional set size ({type(error).__name__})"
        return None


def memory_metrics(ranks: list[RankMemory]) -> dict[str, Metric]:
    """Return the run's memory metrics: the fullest device's numbers, and the sum of all ranks' host memory."""
    one = "one device, the fullest"
    return {
        "peak_memory_reserved_bytes": _fullest(ranks, "reserved", one),
        "peak_memory_allocated_bytes": _fullest(ranks, "allocated", one),
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
    """Return the bytes of `module`'s parameters that this rank keeps; `module` is a torch module, at rest.

    A shard counts, and not what it is a shard of. Memory that several parameters share counts once.
    """
    local = [getattr(parameter, "to_local", lambda own=parameter: own)() for parameter in module.parameters()]
    kept = [part.untyped_storage() for part in local]
    return sum({storage._cdata: storage.nbytes() for storage in kept}.values())


def shard_metric(ranks: list[int]) -> dict[str, Metric]:
    """Return `rank_parameter_bytes`, given every rank's `parameter_bytes`."""
    scope = f"the fullest of {count_of(len(ranks), 'rank')}; all ranks together keep {sum(ranks)}"
    return {"rank_parameter_bytes": Metric(value=float(max(ranks)), unit="B", scope=scope, provenance="counted")}


# Memory that grows with every step of the window, as where a module keeps something of each step.

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

    def sample(self, step: int) -> None:
        """Read all kinds, `step` steps after the window opened."""
        for name, read in self._kinds.items():
            self._readings[name].append((step, read()))

    def growth(self) -> dict[str, tuple[int, int]]:
        """Return the bytes and the steps of each kind of memory that grew throughout the window."""
        found = {name: growth(readings) for name, readings in self._readings.items()}
        return {name: (more, self._readings[name][-1][0]) for name, more in found.items() if more is not None}


def memory_readers(device: Any) -> dict[str, Callable[[], int]]:
    """Return how to read the memory that a rank on `device`, a torch.device, holds for itself.

    On the host, pages of files and memory shared with others grow as data is read. They are left out where the system
    tells them (Linux). A device's is what torch's allocator has handed out, which does not wait for the device.
    """
    from accelsweep.devices.kinds import kind_of

    kinds: dict[str, Callable[[], int]] = {"the host": host.private_bytes}
    kind = kind_of(device.type)
    if kind.allocated_bytes(device) is not None:
        kinds["the device"] = lambda: kind.allocated_bytes(device) or 0
    return kinds
