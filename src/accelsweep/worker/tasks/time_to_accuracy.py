"""Trains until validation reaches a target: counts samples, stops the clock during validation, and checks the target.

The result is defined as in C. Coleman et al., "DAWNBench: An End-to-End Deep Learning Benchmark and Competition"
(2017): the time until the first validation that meets the target. Only training time is counted, because the validation
frequency is a choice made for the measurement. The time including validation is reported as well, as in MLPerf Training
(P. Mattson et al., 2020). The clock starts once the module and the data are set up, before the first batch is fetched.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from accelsweep.devices.clock import Clock, TimedDevice, all_clocks, clock_gap, monotonic
from accelsweep.errors import InputError
from accelsweep.measure import run_doubts
from accelsweep.measure.stalls import CpuTimer, RankStalls, find_stalls, stall_threshold, summarise
from accelsweep.measure.timed_window import Group, StepValues, first_not_finite
from accelsweep.metrics import Metric
from accelsweep.results import Doubt, LearningCurve, LearningPoint
from accelsweep.run_config import SettingConfig
from accelsweep.significant_digits import SECONDS_PER_HOUR
from accelsweep.trainer_arguments import requested_length
from accelsweep.worker.error_classification import Diverged
from accelsweep.worker.loops.loop import NO_VALIDATION

TARGET_METRICS = (
    "time_to_target_seconds",
    "time_to_target_wall_seconds",
    "results_per_hour",
    "samples_to_target",
    "validations",
    "quality",
    "best_quality",
    "quality_seconds",
)
"""The names of the train-to-target metrics."""


@dataclass(frozen=True)
class Target:
    """The target: `metric` must be at least `value` if `better` is `max`, and at most `value` if it is `min`.

    Steps are batches per rank. Validation runs every `every_steps`; training ends after `max_steps`, unless it is None.
    """

    metric: str
    value: float
    better: str
    every_steps: int
    max_steps: int | None

    @classmethod
    def from_config(cls, config: SettingConfig, accumulate: int, epoch_samples: int | None) -> Target:
        """Read the target from a config. Raises an InputError that specifies the key to set, if one is missing.

        Steps are rounded up to whole optimiser steps of `accumulate` batches.
        """
        measure = config.measure
        every, most = measure.validate_every_samples or epoch_samples, most_samples(config, epoch_samples)
        if every is None:
            raise InputError(
                "the data does not declare how many samples a pass contains: set measure.validate_every_samples, or "
                "add an attribute epoch_samples to the data module"
            )
        if measure.quality_metric is None or measure.target is None:
            raise InputError("task=time_to_accuracy needs measure.quality_metric and measure.target: set both")

        def steps(samples: int) -> int:
            return -(-samples // (config.samples_per_step * accumulate)) * accumulate

        max_steps = None if most is None else steps(most)
        return cls(measure.quality_metric, measure.target, measure.better, steps(every), max_steps)

    def reached_by(self, value: float) -> bool:
        """Return whether `value` meets the target."""
        return value <= self.value if self.better == "min" else value >= self.value

    @property
    def description(self) -> str:
        """The target as text, such as `val_accuracy >= 0.9`."""
        return f"{self.metric} {'<=' if self.better == 'min' else '>='} {self.value:g}"


def most_samples(config: SettingConfig, epoch_samples: int | None) -> int | None:
    """Return the number of samples after which training ends without reaching the target; None if only time is limited.

    This is `measure.max_samples`, or else the number derived from `trainer.max_epochs` or `trainer.max_steps`.
    """
    if config.measure.max_samples is not None:
        return config.measure.max_samples
    epochs, steps = requested_length(config.trainer)
    bounds = (
        None if epochs is None or epoch_samples is None else epochs * epoch_samples,
        None if steps is None else steps * config.accumulate * config.samples_per_step,
    )
    return min((bound for bound in bounds if bound is not None), default=None)


class TargetTraining:
    """Listens to the steps and validations of one rank while it trains to a target."""

    def __init__(
        self,
        target: Target,
        *,
        device: TimedDevice,
        group: Group,
        clock: Clock = monotonic,
        epoch_ends: Sequence[int] = (),
    ) -> None:
        """The clock is read with `device` synchronised; `group` contains the ranks that train together.

        `epoch_ends` is the loop's list of the steps that completed a pass over the data.
        """
        self._target, self._device, self._group, self._clock = target, device, group, clock
        self.every_steps = target.every_steps
        self.reached = False
        self.values: list[float] = []
        self.steps = self.samples = 0
        self.training_seconds = self.wall_seconds = 0.0
        self._losses = StepValues()
        self._began_at = 0.0
        self._resumed_at: float | None = None
        self._epoch_ends, self._timer, self._marks = epoch_ends, CpuTimer(), device.marks(clock)
        self._resumed_after, self._clocks = 0, all_clocks()
        self._stalls: list[tuple[float, float | None]] = []
        self._gap_seconds = 0.0
        self._step_samples, self._step_seconds = list[int](), list[float]()
        self._validations: list[LearningPoint] = []
        self.doubts: tuple[Doubt, ...] = ()

    def begin(self) -> None:
        """Start the clock."""
        self._began_at = self._resume()

    def step_done(self, samples: int, loss: Any) -> bool:
        """Count the step, and stop the clock if a validation is due. Return True once the step budget is used up."""
        if self._resumed_at is None:
            raise InputError(NO_VALIDATION)
        self._marks.add()
        self._losses.add(loss)
        self.steps += 1
        self._timer.step_done(self.steps - self._resumed_after)
        self.samples += samples * self._group.size
        self._step_samples.append(samples * self._group.size)
        spent = self.steps == self._target.max_steps
        if spent or self.steps % self.every_steps == 0:
            self._device.synchronise()
            seconds = self._clock() - self._resumed_at
            self.training_seconds += seconds
            self._resumed_at = None
            self._add_stalls(seconds)
        return spent

    def _add_stalls(self, seconds: float) -> None:
        """Find the stalls since the last validation, after which the loader may have restarted."""
        self._timer.stop()
        first = self._resumed_after
        restarts = [0, *(end - first for end in self._epoch_ends if end > first)]
        taken = self._marks.seconds()
        self._step_seconds += taken
        stalls = find_stalls(taken, seconds, restarts)
        self._stalls += [(stall.seconds, self._timer.cores_during(stall)) for stall in stalls]
        self._gap_seconds += clock_gap({name: now - self._clocks[name] for name, now in all_clocks().items()})

    def validated(self, logged: Mapping[str, float]) -> bool:
        """Process the values logged in a validation; return True once rank 0's value has reached the target."""
        bad_step = first_not_finite(self._losses.values())
        if bad_step is not None:
            raise Diverged(f"the loss was not finite at step {bad_step} on the way to the target")
        metric = self._target.metric
        if metric not in logged:
            logs = ", ".join(sorted(logged)) or "nothing"
            raise InputError(
                f"the validation loop does not log {metric!r} (it logs: {logs}): set measure.quality_metric"
            )
        self.values.append(logged[metric])
        self._validations.append(LearningPoint(self.samples, self.values[-1], self.training_seconds))
        self.reached = bool(self._group.broadcast(int(self._target.reached_by(self.values[-1]))))
        if self._group.rank == 0:  # the executor records this line if limits.run_seconds ends the run
            progress = f"{metric} {self.values[-1]:.4g} after {self.samples} samples"
            sys.stderr.write(f"accelsweep: {progress}; target: {self._target.description}\n")
        self.wall_seconds = self._resume() - self._began_at
        return self.reached

    def _resume(self) -> float:
        self._device.synchronise()
        self._timer.start()
        self._group.barrier()
        self._resumed_after, self._clocks = self.steps, all_clocks()
        self._resumed_at = self._clock()
        self._marks = self._device.marks(self._clock)
        return self._resumed_at

    @property
    def learning(self) -> LearningCurve:
        """How the module learned, with this rank's losses. Waits for the device."""
        return LearningCurve.of_steps(self._step_samples, self._losses.values(), self._validations, self._step_seconds)

    def metrics(self) -> dict[str, Metric]:
        """Return the metrics, based on the time of the slowest rank, and set `doubts`. Every rank must call this."""
        threshold = stall_threshold(self.training_seconds)
        stalls = summarise([stall for stall in self._stalls if stall[0] >= threshold])
        seconds = {"training": self.training_seconds, "wall": self.wall_seconds, "gap": self._gap_seconds}
        ranks = self._group.gather({**seconds, "stalls": asdict(stalls)})
        training, wall, gap = (max(rank[kind] for rank in ranks) for kind in seconds)
        rank_stalls, what = [RankStalls(**rank["stalls"]) for rank in ranks], "the training to the target"
        without = f"it took {training - max(rank.seconds for rank in rank_stalls):.4g} s"
        doubts = run_doubts.stalled(rank_stalls, training, without, what), run_doubts.clock_gap(gap, what)
        self.doubts = tuple(filter(None, doubts))
        best = (min if self._target.better == "min" else max)(filter(math.isfinite, self.values), default=math.nan)
        missed = None
        if not self.reached:
            missed = f"target {self._target.description} not reached within {self.samples} samples (best {best:.4g})"
        name, clock = self._target.metric, {"provenance": "clock"}
        alone, total = "slowest rank, validation excluded", "slowest rank, validation included"
        return {
            "time_to_target_seconds": _unless(missed, training, "s", scope=alone, **clock),
            "time_to_target_wall_seconds": _unless(missed, wall, "s", scope=total, **clock),
            "results_per_hour": _unless(missed, SECONDS_PER_HOUR / training, "results/h", scope=alone, **clock),
            "samples_to_target": _unless(missed, float(self.samples), "samples", scope="all ranks"),
            "validations": Metric(value=float(len(self.values)), unit="validations", scope="all ranks"),
            "quality": _quality(self.values[-1], name, f"validation set, after {self.samples} training samples"),
            "best_quality": _quality(best, name, f"best of {len(self.values)} validations"),
            "quality_seconds": Metric(value=wall - training, unit="s", scope="slowest rank", **clock),
        }


def _unless(missed: str | None, value: float, unit: str, **options: str) -> Metric:
    return Metric(value=None if missed else value, unit=unit, reason=missed, **options)


def _quality(value: float, name: str, scope: str) -> Metric:
    if math.isfinite(value):
        return Metric(value=value, unit=name, scope=scope)
    return Metric(value=None, unit=name, reason=f"{name} is {value}", scope=scope)
