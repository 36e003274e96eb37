"""Memory in four different numbers, all in bytes.

Two are peaks of torch's allocator: the memory that it handed out, and the memory that it reserved. The third is the use
of the whole device. It includes other processes and the driver's own context. The fourth is the host's proportional set
size (PSS). In PSS, pages shared with a forked parent count by their share; `ru_maxrss` would start at the parent's. The
host's number is no peak. It is that of the ranks' own processes as the window closes, without the processes that load
data.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import psutil

from accelsweep.base.digits import count_of
from accelsweep.core.recorded.record import Metric


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
    from accelsweep.measure.devices.kinds import torch_kind

    reasons: dict[str, str] = {}
    pss = _pss(reasons)
    seen = torch_kind(device.type).memory(device)
    return RankMemory(seen.allocated, seen.reserved, seen.device, pss, reasons | seen.reasons)


def _pss(reasons: dict[str, str]) -> int | None:
    try:
        return int(psutil.Process().memory_full_info().pss)
    except (AttributeError, OSError, psutil.Error) as error:
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
