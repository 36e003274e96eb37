"""The training tasks: throughput, time to accuracy, and one trial in a search for the largest batch."""

from __future__ import annotations

import math
import os
from collections.abc import Collection
from dataclasses import replace

from accelsweep.devices.clock import monotonic
from accelsweep.devices.device_kind import MemoryCap
from accelsweep.devices.kinds import kind_of, timed_device
from accelsweep.devices.memory_limits import FreeMemory, free_memory_per_rank
from accelsweep.measure import run_doubts
from accelsweep.measure.breakdown import SHARES
from accelsweep.measure.memory import parameter_bytes, shard_metric
from accelsweep.measure.timed_window import RankWindow, group_of
from accelsweep.metrics import Metric, not_reached
from accelsweep.results import ANY_FAILURE, ErrorKind
from accelsweep.worker.loops import make_loop
from accelsweep.worker.loops.loop import Loop, TrainingLength
from accelsweep.worker.model_probes import (
    FLOPS_METRICS,
    count_traits,
    flops_metrics,
    matmul_share,
    measure_breakdown,
    release_memory,
)
from accelsweep.worker.quality import QualityPhase, measure_quality
from accelsweep.worker.rank_measurement import Measurement, RankReport
from accelsweep.worker.rank_setup import RankPlace
from accelsweep.worker.run_spec import RunSpec
from accelsweep.worker.tasks.time_to_accuracy import TARGET_METRICS, Target, TargetTraining, most_samples


class TrainThroughput:
    """`task: train_throughput`: train through the window, then measure the step breakdown, operations and quality.

    Every phase uses a fresh module.
    """

    tolerated_failures: Collection[ErrorKind] = ANY_FAILURE

    def __init__(self, spec: RunSpec, place: RankPlace) -> None:
        """`spec` specifies the module; `place` identifies this rank."""
        self._spec, self._place = spec, place
        self._loop: Loop | None = None
        self._logged: dict[str, float] = {}

    def driver(self) -> Loop:
        """Return the training loop."""
        self._loop = make_loop(self._spec)
        self._device = self._loop.device
        return self._loop

    def window_closed(self, measured: Measurement, report: RankReport) -> None:
        """Add the final loss, the training set size, the learning rate and the module's logged values."""
        loop, self._loop = self._loop, None
        assert loop is not None, "driver() comes first"
        self._example, self._epoch_samples = loop.example, loop.epoch_samples
        self._length_factor = _length_factor(loop, measured.window)
        report.metrics |= {
            "final_train_loss": _final_loss(measured.window.losses),
            "epoch_samples": _epoch_samples(self._epoch_samples),
            "learning_rate": _learning_rate(loop.learning_rate),
            **loop.loss_scale.metrics(),
            **shard_metric(group_of(self._spec.world_size).gather(parameter_bytes(loop.module))),
            **not_reached((*SHARES, *FLOPS_METRICS)),
            **self._quality_not_reached(),
        }
        if measured.diverged_at is None:  # all ranks agree, as required by a collective in `logged`
            self._logged = loop.logged

    def after_window(self, report: RankReport) -> None:
        """Measure the step breakdown, the matmul share, operations and quality."""
        release_memory(self._device)
        with report.phase("probe"):
            probe = measure_breakdown(self._spec, report.metrics["step_seconds"].value or math.inf)
        report.breakdown = probe.breakdown
        report.metrics |= probe.metrics
        if probe.breakdown is not None and self._place.rank == 0:
            report.doubts += filter(None, [run_doubts.input_bound(probe.breakdown.verdict, probe.breakdown.evidence)])
        release_memory(self._device)
        report.metrics |= matmul_share(self._spec)
        release_memory(self._device)
        rate, effective = report.metrics["samples_per_second"].value, report.effective
        if self._place.rank == 0 and effective is not None and rate is not None:
            report.metrics |= flops_metrics(
                self._spec, self._device, self._example, effective, rate * self._length_factor
            )
            report.traits = count_traits(self._spec, self._example, effective.batch_size)
        quality = self._measure_quality(report)
        report.metrics |= quality.metrics
        report.learning = quality.learning
        report.doubts += quality.doubts if self._place.rank == 0 else ()
        report.metrics |= {f"logged.{name}": _logged(value) for name, value in (self._logged | quality.logged).items()}

    def _quality_not_reached(self) -> dict[str, Metric]:
        rules = self._spec.config.measure
        if rules.quality_samples is None:
            return measure_quality(self._spec).metrics
        return not_reached(("quality", "quality_seconds"), rules.quality_metric)

    def _measure_quality(self, report: RankReport) -> QualityPhase:
        with report.phase("quality"):
            return measure_quality(self._spec)


def _length_factor(loop: Loop, window: RankWindow) -> float:
    """Return how long the window's samples are, on average, compared with those of the first batch, padding included.

    The operations are counted in that batch. Samples that are no sequences of tokens are taken to be alike.
    """
    positions = [] if loop.tokens is None else loop.tokens.positions
    if len(positions) != len(window.step_samples) or not (positions and positions[0]):
        return 1.0
    first = positions[0] / window.step_samples[0]
    return sum(positions[window.warmup_steps :]) / window.samples / first


def _final_loss(losses: list[float | None]) -> Metric:
    last = losses[-1]
    if last is None or not math.isfinite(last):
        reason = "the training step returned no loss" if last is None else f"the loss was {last}"
        return Metric(value=None, unit="loss", reason=reason, scope="rank 0")
    return Metric(value=last, unit="loss", scope="rank 0, last step of the window")


def _learning_rate(rate: float | None) -> Metric:
    scope = "first parameter group, end of the window"
    if rate is None:
        return Metric(value=None, unit="1", reason="none of the optimisers has a learning rate", scope=scope)
    return Metric(value=rate, unit="1", scope=scope)


def _epoch_samples(samples: int | None) -> Metric:
    scope = "one pass over the training set, all ranks"
    if samples is None:
        reason = (
            "no pass ended, and the loader does not report its length: add an attribute epoch_samples to the data "
            "module"
        )
        return Metric(value=None, unit="samples", reason=reason, scope=scope)
    return Metric(value=float(samples), unit="samples", scope=scope)


def _logged(value: float) -> Metric:
    if math.isfinite(value):
        return Metric(value=value, unit="as logged", scope="logged by the module")
    return Metric(value=None, unit="as logged", reason=f"the module logged {value}", scope="logged by the module")


class EntryThroughput(TrainThroughput):
    """`task: train_throughput` with the user's own script, whose one training passes through all phases.

    Quality comes first, after the same number of samples in every setting; a window's number of steps depends on the
    step time.
    """

    def driver(self) -> Loop:
        """Measure quality, then return the training loop."""
        loop = super().driver()
        measure = self._spec.config.measure
        began = monotonic()
        self._quality = measure_quality(self._spec)
        self._quality_phase = began, monotonic()
        if measure.quality_samples is not None:  # its validation may need more memory than training
            release_memory(self._device)
            kind_of(self._device.type).reset_peak_memory(self._device)
        return loop

    def window_closed(self, measured: Measurement, report: RankReport) -> None:
        """Add what the loop knows, and correct the times before the window, which the quality phase precedes."""
        super().window_closed(measured, report)
        from accelsweep.worker.loops.entry_point import running_loop

        loop = running_loop()
        load, first = report.metrics["load_seconds"], report.metrics["first_step_seconds"]
        early = measured.window.began_at - loop.began_at
        scope = "rank 0: the script, from its start until its training began"
        report.metrics["load_seconds"] = replace(load, value=(load.value or 0.0) - early, scope=scope)
        report.metrics["first_step_seconds"] = replace(first, value=loop.first_step_seconds)
        report.doubts += filter(None, [run_doubts.fixed_seed(os.environ.get("PL_GLOBAL_SEED"), self._spec.run.seed)])

    def _measure_quality(self, report: RankReport) -> QualityPhase:
        report.phases["quality"] = self._quality_phase
        return self._quality


class TimeToAccuracy(TrainThroughput):
    """`task: time_to_accuracy`: instead of the quality phase, train a fresh module until it reaches the target."""

    # Other failures, such as running out of memory, are not tolerated: a run with more memory or time may still reach
    # the target.
    tolerated_failures = frozenset({"user_exception"})

    def _quality_not_reached(self) -> dict[str, Metric]:
        return not_reached(TARGET_METRICS, self._spec.config.measure.quality_metric)

    def _measure_quality(self, report: RankReport) -> QualityPhase:
        config = self._spec.config
        loop = make_loop(self._spec, TrainingLength(samples=most_samples(config, self._epoch_samples)))
        training = TargetTraining(
            Target.from_config(config, loop.accumulate, self._epoch_samples),
            device=timed_device(loop.device),
            group=group_of(self._spec.world_size),
            epoch_ends=loop.epoch_ends,
        )
        with report.phase("quality"):
            loop.drive(training, training)
        metrics = training.metrics()
        return QualityPhase(metrics, loop.logged, training.doubts, training.learning)


class LargestBatch:
    """`task: largest_batch`: one trial, consisting of a few training steps at one batch size under a memory cap."""

    tolerated_failures = frozenset[ErrorKind]()  # none is tolerated, because the result is whether the batch fits

    def __init__(self, spec: RunSpec, place: RankPlace) -> None:
        """`spec` contains the batch size and, if the executor measured it, the host memory per rank."""
        self._spec, self._place = spec, place
        self._loop: Loop | None = None
        self._cap: MemoryCap | None = None

    def driver(self) -> Loop:
        """Return the training loop. The loop builds the module, data and optimiser under the cap, in its first step."""
        self._loop = loop = make_loop(self._spec)
        measure = self._spec.config.measure
        host = self._spec.host_memory or free_memory_per_rank(self._place.local_size, measure.rank_memory_bytes)
        self._cap = kind_of(loop.device.type).cap_memory(
            loop.device, measure.headroom, measure.rank_memory_bytes, FreeMemory(*host)
        )
        return loop

    def window_closed(self, measured: Measurement, report: RankReport) -> None:
        """Add this rank's cap and peak, and the training set size."""
        del measured
        loop, self._loop = self._loop, None
        assert loop is not None, "driver() comes first"
        assert self._cap is not None, "driver() comes first"
        limit = Metric(value=float(self._cap.bytes), unit="B", scope=self._cap.limit)
        report.metrics["memory_limit_bytes"] = limit
        report.metrics["peak_rank_bytes"] = _known(self._cap.peak(), "B", "the allocator does not record its peak")
        report.metrics["epoch_samples"] = _known(loop.epoch_samples, "samples", "the loader does not report its length")

    def after_window(self, report: RankReport) -> None:
        """Do nothing."""


def _known(value: int | None, unit: str, reason: str) -> Metric:
    return Metric(value=None, unit=unit, reason=reason) if value is None else Metric(value=float(value), unit=unit)
