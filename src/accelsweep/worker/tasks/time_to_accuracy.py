"""Training until a target is reached: a listener counts samples, stops the clock for each validation, and decides.

The result is that of C. Coleman et al., "DAWNBench: An End-to-End Deep Learning Benchmark and Competition" (2017): the
time until the first validation that is good enough. It is the time of training alone, because the rate of validations
is a choice of the measurement. The seconds with validation are kept beside it; MLPerf Training counts these (P. Mattson
et al., 2020). The clock starts before the first batch is fetched, with module and data set up.
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
from accelsweep.measure.stalls import OurWork, RankStalls, find_stalls, least_seconds, together
from accelsweep.measure.window import Group, Losses, first_not_finite
from accelsweep.metrics import Metric
from accelsweep.results import Doubt
from accelsweep.run_config import SettingConfig
from accelsweep.significant_digits import SECONDS_PER_HOUR
from accelsweep.trainer_arguments import requested_length
from accelsweep.worker.errors import Diverged
from accelsweep.worker.loops.loop import NO_VALIDATION

CHASED = (
    "time_to_target_seconds",
    "time_to_target_wall_seconds",
    "results_per_hour",
    "samples_to_target",
    "validations",
    "quality",
    "best_quality",
    "quality_seconds",
)
"""The names of the metrics of a chase."""


@dataclass(frozen=True)
class Goal:
    """The target: `metric` at least (`better` max) or at most (min) `target`.

    Steps are batches per rank. There is a validation every `every_steps`, and training ends after `max_steps`, if that
    is not None.
    """

    metric: str
    target: float
    better: str
    every_steps: int
    max_steps: int | None

    @classmethod
    def of(cls, config: SettingConfig, accumulate: int, epoch_samples: int | None) -> Goal:
        """Read the goal from a config. Raises InputError naming the key to set.

        Steps are rounded up to whole optimiser steps of `accumulate` batches.
        """
        measure, together = config.measure, config.samples_per_step
        every, most = measure.validate_every_samples or epoch_samples, most_samples(config, epoch_samples)
        if every is None:
            raise InputError(
                "the data does not tell how many samples one pass has: set measure.validate_every_samples, or give "
                "the data module an attribute epoch_samples"
            )
        every_steps = _steps(every, together, accumulate)
        max_steps = None if most is None else _steps(most, together, accumulate)
        if measure.quality_metric is None or measure.target is None:
            raise InputError("task=time_to_accuracy needs measure.quality_metric and measure.target: set both")
        return cls(measure.quality_metric, measure.target, measure.better, every_steps, max_steps)

    def reached_by(self, value: float) -> bool:
        """Return whether `value` is good enough."""
        return value <= self.target if self.better == "min" else value >= self.target

    @property
    def words(self) -> str:
        """The goal in words: `val_accuracy >= 0.9`."""
        return f"{self.metric} {'<=' if self.better == 'min' else '>='} {self.target:g}"


def most_samples(config: SettingConfig, epoch_samples: int | None) -> int | None:
    """Return the most training samples on the way to the target; None where only a time limit bounds them.

    They are `measure.max_samples`, or else as many as `trainer.max_epochs` or `trainer.max_steps` make.
    """
    if config.measure.max_samples is not None:
        return config.measure.max_samples
    epochs, steps = requested_length(config.trainer)
    accumulate = int(config.trainer.get("accumulate_grad_batches") or 1)
    bounds = (
        None if epochs is None or epoch_samples is None else epochs * epoch_samples,
        None if steps is None else steps * accumulate * config.samples_per_step,
    )
    return min((bound for bound in bounds if bound is not None), default=None)


def _steps(samples: int, together: int, accumulate: int) -> int:
    return -(-samples // (together * accumulate)) * accumulate


class Chase:
    """Listener and examiner of a training loop, on one rank."""

    def __init__(
        self,
        goal: Goal,
        *,
        device: TimedDevice,
        group: Group,
        clock: Clock = monotonic,
        epoch_ends: Sequence[int] = (),
    ) -> None:
        """The clock is read with `device` synchronised; `group` are the ranks that train together.

        `epoch_ends` grows as the loop ends its passes over the data, each after so many steps.
        """
        self._goal, self._device, self._group, self._clock = goal, device, group, clock
        self.every_steps = goal.every_steps
        self.reached = False
        self.values: list[float] = []
        self.steps = self.samples = 0
        self.training_seconds = self.wall_seconds = 0.0
        self._losses = Losses()
        self._began_at = 0.0
        self._resumed_at: float | None = None
        self._epoch_ends, self._work, self._marks = epoch_ends, OurWork(), device.marks(clock)
        self._resumed_after, self._clocks = 0, all_clocks()
        self._stalls: list[tuple[float, float | None]] = []
        self._gap_seconds = 0.0
        self.doubts: tuple[Doubt, ...] = ()

    def begin(self) -> None:
        """Start the clock."""
        self._began_at = self._resume()

    def step_done(self, samples: int, loss: Any) -> bool:
        """Count; stop the clock where a validation is due. True once the samples are spent."""
        if self._resumed_at is None:
            raise InputError(NO_VALIDATION)
        self._marks.add()
        self._losses.add(loss)
        self.steps += 1
        self._work.step_done(self.steps - self._resumed_after)
        self.samples += samples * self._group.size
        spent = self.steps == self._goal.max_steps
        if spent or self.steps % self.every_steps == 0:
            self._device.synchronise()
            seconds = self._clock() - self._resumed_at
            self.training_seconds += seconds
            self._resumed_at = None
            self._look_for_stalls(seconds)
        return spent

    def _look_for_stalls(self, seconds: float) -> None:
        """Look at the steps since the last validation; the first of them may begin the data anew."""
        self._work.stop()
        first = self._resumed_after
        restarts = [0, *(end - first for end in self._epoch_ends if end > first)]
        found = find_stalls(self._marks.seconds(), seconds, restarts)
        self._stalls += [(stall.seconds, self._work.cores(stall)) for stall in found]
        self._gap_seconds += clock_gap({name: now - self._clocks[name] for name, now in all_clocks().items()})

    def examined(self, logged: Mapping[str, float]) -> bool:
        """Look at the logged values of validation; True once the target is reached, for which rank 0's value counts."""
        bad = first_not_finite(self._losses.values())
        if bad is not None:
            raise Diverged(f"the loss was not finite at step {bad} on the way to the target")
        if self._goal.metric not in logged:
            logs = ", ".join(sorted(logged)) or "nothing"
            raise InputError(
                f"the validation loop logs no {self._goal.metric!r} (it logs: {logs}): set measure.quality_metric"
            )
        self.values.append(logged[self._goal.metric])
        self.reached = bool(self._group.broadcast(int(self._goal.reached_by(self.values[-1]))))
        self._tell()
        self.wall_seconds = self._resume() - self._began_at
        return self.reached

    def _tell(self) -> None:
        """Write a line into the log, so that a chase cut off by limits.run_seconds is recorded with its progress."""
        if self._group.rank == 0:
            value = f"{self._goal.metric} {self.values[-1]:.4g}"
            sys.stderr.write(f"accelsweep: {value} after {self.samples} samples, to be {self._goal.words}\n")

    def _resume(self) -> float:
        self._device.synchronise()
        self._work.start()
        self._group.barrier()
        self._resumed_after, self._clocks = self.steps, all_clocks()
        self._resumed_at = self._clock()
        self._marks = self._device.marks(self._clock)
        return self._resumed_at

    def metrics(self) -> dict[str, Metric]:
        """Return the metrics of the chase, with the slowest rank's seconds. Every rank must call it."""
        least = least_seconds(self.training_seconds)
        stalls = together([stall for stall in self._stalls if stall[0] >= least])
        mine = {"training": self.training_seconds, "wall": self.wall_seconds, "gap": self._gap_seconds}
        ranks = self._group.gather({**mine, "stalls": asdict(stalls)})
        training, wall, gap = (max(rank[kind] for rank in ranks) for kind in ("training", "wall", "gap"))
        stalled, what = [RankStalls(**rank["stalls"]) for rank in ranks], "the training to the target"
        without = f"it took {training - max(rank.seconds for rank in stalled):.4g} s"
        found = run_doubts.stalled(stalled, training, without, what), run_doubts.clock_gap(gap, what)
        self.doubts = tuple(filter(None, found))
        name, clock = self._goal.metric, {"provenance": "clock"}
        missed = None if self.reached else self._missed()
        alone, whole = "slowest rank, validation excluded", "slowest rank, validation included"
        return {
            "time_to_target_seconds": _unless(missed, training, "s", scope=alone, **clock),
            "time_to_target_wall_seconds": _unless(missed, wall, "s", scope=whole, **clock),
            "results_per_hour": _unless(missed, SECONDS_PER_HOUR / training, "results/h", scope=alone, **clock),
            "samples_to_target": _unless(missed, float(self.samples), "samples", scope="all ranks"),
            "validations": Metric(value=float(len(self.values)), unit="validations", scope="all ranks"),
            "quality": _quality(self.values[-1], name, f"validation set, after {self.samples} training samples"),
            "best_quality": _quality(self._best(), name, f"best of {len(self.values)} validations"),
            "quality_seconds": Metric(value=wall - training, unit="s", scope="slowest rank", **clock),
        }

    def _missed(self) -> str:
        return f"target {self._goal.words} not reached within {self.samples} samples (best {self._best():.4g})"

    def _best(self) -> float:
        finite = [value for value in self.values if math.isfinite(value)]
        return (min if self._goal.better == "min" else max)(finite, default=math.nan)


def _unless(missed: str | None, value: float, unit: str, **about: str) -> Metric:
    return Metric(value=None if missed else value, unit=unit, reason=missed, **about)


def _quality(value: float, name: str, scope: str) -> Metric:
    if math.isfinite(value):
        return Metric(value=value, unit=name, scope=scope)
    return Metric(value=None, unit=name, reason=f"{name} is {value}", scope=scope)
