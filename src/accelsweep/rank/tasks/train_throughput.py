"""`task: train_throughput`: training through the window; then its breakdown, its operations and its quality."""

from __future__ import annotations

import math
from typing import Any

from accelsweep.core.recorded.record import Metric
from accelsweep.measure.group import group_of
from accelsweep.measure.metrics.memory import parameter_bytes, shard_metric
from accelsweep.rank.account import Account
from accelsweep.rank.counting import count_operations, count_traits
from accelsweep.rank.loops.loop import Loop
from accelsweep.rank.loops.make import make_loop
from accelsweep.rank.matmul import matmul_share
from accelsweep.rank.measuring import Measurement
from accelsweep.rank.probing import probe, release
from accelsweep.rank.process import RankPlace
from accelsweep.rank.quality import QualityPhase, measure_quality
from accelsweep.rank.spec import RunSpec


class TrainThroughput:
    """Trains; every phase has a fresh module."""

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
