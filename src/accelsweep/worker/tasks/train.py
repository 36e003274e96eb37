"""`task: train_throughput`: training through the window; then its breakdown, its operations and its quality."""

from __future__ import annotations

import math
from collections.abc import Collection
from typing import Any

from accelsweep.devices.device_kind import MemoryCap
from accelsweep.devices.kinds import kind_of, timed_device
from accelsweep.devices.memory_limits import FreeMemory, free_memory_per_rank
from accelsweep.measure.breakdown import SHARES
from accelsweep.measure.memory import parameter_bytes, shard_metric
from accelsweep.measure.window import group_of
from accelsweep.metrics import Metric, not_reached
from accelsweep.results import ANY_FAILURE, ErrorKind
from accelsweep.worker.loops.factory import make_loop
from accelsweep.worker.loops.loop import Length, Loop
from accelsweep.worker.measurement import Account, Measurement
from accelsweep.worker.model_probes import COUNTED, count_operations, count_traits, matmul_share, probe, release
from accelsweep.worker.quality import QualityPhase, measure_quality
from accelsweep.worker.rank_setup import RankPlace
from accelsweep.worker.run_spec import RunSpec
from accelsweep.worker.tasks.time_to_accuracy import CHASED, Chase, Goal, most_samples


class TrainThroughput:
    """Trains; every phase has a fresh module."""

    rate_survives: Collection[ErrorKind] = ANY_FAILURE

    def __init__(self, spec: RunSpec, place: RankPlace) -> None:
        """`spec` names the module, `place` this rank among the others."""
        self._spec, self._place = spec, place
        self._loop: Loop | None = None
        self._example: Any = None
        self._epoch_samples: int | None = None
        self._logged: dict[str, float] = {}

    def driver(self) -> Loop:
        """Return the training loop."""
        self._loop = make_loop(self._spec)
        self._device = self._loop.device
        return self._loop

    def closed(self, measured: Measurement, account: Account) -> None:
        """Keep the last loss, the size of the training set, and the module's logged values."""
        loop, self._loop = self._loop, None
        assert loop is not None, "driver() comes first"
        self._example, self._epoch_samples = loop.example, loop.epoch_samples
        account.metrics |= {
            "final_train_loss": _final_loss(measured.window.losses),
            "epoch_samples": _epoch_samples(self._epoch_samples),
            "learning_rate": _learning_rate(loop.learning_rate),
            **loop.loss_scale.metrics(),
            **shard_metric(group_of(self._spec.world_size).gather(parameter_bytes(loop.module))),
            **not_reached((*SHARES, *COUNTED)),
            **self._without_quality(),
        }
        if measured.diverged_at is None:  # ranks agree on that, and their logged values may need a collective
            self._logged = loop.logged

    def after(self, account: Account) -> None:
        """Probe, profile, count and compare with the ceiling; then measure the quality."""
        release(self._device)
        probed = probe(self._spec, account.metrics["step_seconds"].value or math.inf)
        account.breakdown = probed.breakdown
        account.metrics |= probed.metrics
        release(self._device)
        account.metrics |= matmul_share(self._spec)
        release(self._device)
        rate, effective = account.metrics["samples_per_second"].value, account.effective
        if self._place.rank == 0 and effective is not None and rate is not None:
            account.metrics |= count_operations(self._spec, self._device, self._example, effective, rate)
            account.traits = count_traits(self._spec, self._example, effective.batch_size)
        quality = self._quality()
        account.metrics |= quality.metrics
        account.doubts += quality.doubts if self._place.rank == 0 else ()
        account.metrics |= {f"logged.{name}": _logged(value) for name, value in (self._logged | quality.logged).items()}

    def _without_quality(self) -> dict[str, Metric]:
        """Return the metrics of `_quality` before it was measured."""
        rules = self._spec.config.measure
        if rules.quality_samples is None:
            return measure_quality(self._spec).metrics
        return not_reached(("quality", "quality_seconds"), rules.quality_metric)

    def _quality(self) -> QualityPhase:
        return measure_quality(self._spec)


def _final_loss(losses: list[float | None]) -> Metric:
    last = losses[-1]
    if last is None or not math.isfinite(last):
        reason = "the training step gave no loss" if last is None else f"the loss was {last}"
        return Metric(value=None, unit="loss", reason=reason, scope="rank 0")
    return Metric(value=last, unit="loss", scope="rank 0, last step of the window")


def _learning_rate(rate: float | None) -> Metric:
    scope = "first parameter group, end of the window"
    if rate is None:
        return Metric(value=None, unit="1", reason="no optimiser here has a learning rate", scope=scope)
    return Metric(value=rate, unit="1", scope=scope)


def _epoch_samples(samples: int | None) -> Metric:
    scope = "one pass over the training set, all ranks"
    if samples is None:
        reason = (
            "no pass ended, and the loader does not tell its length: give the data module an attribute epoch_samples"
        )
        return Metric(value=None, unit="samples", reason=reason, scope=scope)
    return Metric(value=float(samples), unit="samples", scope=scope)


def _logged(value: float) -> Metric:
    if math.isfinite(value):
        return Metric(value=value, unit="as logged", scope="logged by the module")
    return Metric(value=None, unit="as logged", reason=f"the module logged {value}", scope="logged by the module")


# `task: memory_frontier`, one try: some whole training steps within a bound on memory, and the peak that they reached.


class MemoryFrontier:
    """Trains with one batch size. A rank whose memory ends says so as any other does."""

    rate_survives = frozenset[ErrorKind]()  # whether it fits is what was asked for

    def __init__(self, spec: RunSpec, place: RankPlace) -> None:
        """`spec` names the batch and, where the executor measured it, the free host memory of a rank."""
        self._spec, self._place = spec, place
        self._loop: Loop | None = None
        self._bound: MemoryCap | None = None

    def driver(self) -> Loop:
        """Return the training loop. Module, data and optimiser are built by its first step, within the bound."""
        self._loop = loop = make_loop(self._spec)
        measure = self._spec.config.measure
        kind, stated = kind_of(loop.device.type), measure.rank_memory_bytes
        host = self._spec.room or free_memory_per_rank(self._place.local_size, stated)
        self._bound = kind.cap_memory(loop.device, measure.headroom, stated, FreeMemory(*host))
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


# `task: time_to_accuracy`: a training run with training until the target in place of its quality phase.


class TimeToAccuracy(TrainThroughput):
    """Trains a fresh module and validates it again and again, until it is good enough or the samples are spent."""

    rate_survives = frozenset({"user_exception"})  # the time is what was asked for, and a higher limit may find it

    def _without_quality(self) -> dict[str, Metric]:
        return not_reached(CHASED, self._spec.config.measure.quality_metric)

    def _quality(self) -> QualityPhase:
        most = most_samples(self._spec.config, self._epoch_samples)
        loop = make_loop(self._spec, Length(samples=most))
        goal = Goal.of(self._spec.config, loop.accumulate, self._epoch_samples)
        chase = Chase(
            goal, device=timed_device(loop.device), group=group_of(self._spec.world_size), epoch_ends=loop.epoch_ends
        )
        loop.drive(chase, chase)
        metrics = chase.metrics()
        return QualityPhase(metrics, loop.logged, chase.doubts)
