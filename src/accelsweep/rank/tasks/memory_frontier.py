"""`task: memory_frontier`, one try: some whole training steps within a bound on memory, and the peak that they reached.

Which batches are tried is the supervisor's affair (`supervise.frontier`): each try has ranks of its own. Three steps at
least are done, so that the optimiser's state exists while activations and gradients do.
"""

from __future__ import annotations

from accelsweep.core.recorded.record import Metric
from accelsweep.machine.room import FreeMemory, room_of_a_rank
from accelsweep.measure.devices.bounds import Bound
from accelsweep.measure.devices.kinds import torch_kind
from accelsweep.rank.account import Account
from accelsweep.rank.loops.loop import Loop
from accelsweep.rank.loops.make import make_loop
from accelsweep.rank.measuring import Measurement
from accelsweep.rank.process import RankPlace
from accelsweep.rank.spec import RunSpec


class MemoryFrontier:
    """Trains with one batch size. A rank whose memory ends says so as any other does."""

    def __init__(self, spec: RunSpec, place: RankPlace) -> None:
        """`spec` names the batch and, where the supervisor has found it, the room of a rank on the host."""
        self._spec, self._place = spec, place
        self._loop: Loop | None = None
        self._bound: Bound | None = None

    def driver(self) -> Loop:
        """Return the training loop. Module, data and optimiser are built by its first step, within the bound."""
        self._loop = loop = make_loop(self._spec)
        measure = self._spec.config.measure
        kind, stated = torch_kind(loop.device.type), measure.rank_memory_bytes
        host = self._spec.room or room_of_a_rank(self._place.local_size, stated)
        self._bound = kind.bound(loop.device, measure.headroom, stated, FreeMemory(*host))
        return loop

    def closed(self, measured: Measurement, account: Account) -> None:
        """Add the bound and the peak within it, both of this rank, and the size of the training set."""
        del measured
        loop, self._loop = self._loop, None
        assert loop is not None, "driver() comes first"
        assert self._bound is not None, "driver() comes first"
        rows, peak = loop.epoch_samples, self._bound.peak()
        account.metrics["memory_limit_bytes"] = Metric(
            value=float(self._bound.bytes), unit="B", scope=self._bound.limit
        )
        account.metrics["peak_rank_bytes"] = _known(peak, "B", "the allocator keeps no peak")
        account.metrics["epoch_samples"] = _known(rows, "samples", "the loader does not tell its length")

    def after(self, account: Account) -> None:
        """Nothing is left to measure."""


def _known(value: int | None, unit: str, why_not: str) -> Metric:
    return Metric(value=None, unit=unit, reason=why_not) if value is None else Metric(value=float(value), unit=unit)
