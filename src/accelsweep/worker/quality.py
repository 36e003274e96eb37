"""Measures quality in a separate phase that trains a fresh module on a fixed number of samples, then validates it.

The timed window cannot be used for this: its number of steps depends on the step time, so a faster setting would train
on more samples. In this phase all settings train on the same number of samples, with the repeat's seed, so that quality
can be paired by seed. If the data has folds, this is a cross-validation: a fresh module is trained for each fold, and
the data is loaded once.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from accelsweep.devices.clock import Clock, monotonic
from accelsweep.measure.timed_window import StepValues, first_not_finite
from accelsweep.metrics import Metric
from accelsweep.results import Doubt, LearningCurve, LearningPoint
from accelsweep.worker.error_classification import Diverged
from accelsweep.worker.loops import make_loop
from accelsweep.worker.loops.loop import TrainingLength
from accelsweep.worker.loops.sample_count import OptimizerSteps
from accelsweep.worker.run_spec import RunSpec
from accelsweep.workloads.data_module import FiniteData


class SampleBudget:
    """A listener that ends the phase after a given number of samples, at the end of an optimiser step."""

    def __init__(self, samples: int, ranks: int, optimizer_steps: OptimizerSteps | None = None) -> None:
        """`samples` is the total number across all `ranks`."""
        self._samples, self._ranks, self._optimizer_steps = samples, ranks, optimizer_steps
        self._losses, self._step_samples = StepValues(), list[int]()
        self.seen = 0

    def begin(self) -> None:
        """Do nothing before the first batch."""

    def step_done(self, samples: int, loss: Any) -> bool:
        """Count the step; return True once the budget is used up.

        All ranks agree, because their batches are the same size.
        """
        self._losses.add(loss)
        self._step_samples.append(samples * self._ranks)
        self.seen += samples * self._ranks
        unfinished = self._optimizer_steps is not None and self._optimizer_steps.unfinished
        return self.seen >= self._samples and not unfinished

    def first_bad_step(self) -> int | None:
        """Return the first step with a NaN or infinite loss, or None. Waits for the device."""
        return first_not_finite(self._losses.values())

    def curve(self, quality: float | None) -> LearningCurve:
        """Return how the module learned, up to the `quality` at the end, if there is one. Waits for the device."""
        validations = [] if quality is None else [LearningPoint(self.seen, quality)]
        return LearningCurve.of_steps(self._step_samples, self._losses.values(), validations)


@dataclass(frozen=True)
class QualityPhase:
    """The results of the quality phase: its metrics, other values that the module logged, doubts, and the curve."""

    metrics: dict[str, Metric]
    logged: dict[str, float]
    doubts: tuple[Doubt, ...] = ()
    learning: LearningCurve | None = None


def measure_quality(spec: RunSpec, clock: Clock = monotonic) -> QualityPhase:
    """Train on `measure.quality_samples` samples and validate. Raises Diverged, and errors from the user's code."""
    samples, name = spec.config.measure.quality_samples, spec.config.measure.quality_metric or "quality"
    if samples is None:
        reason = spec.quality_put_off or "not requested: measure.quality_samples is null"
        units = {"quality": name, "quality_seconds": "s"}
        return QualityPhase(
            {metric: Metric(value=None, unit=unit, reason=reason) for metric, unit in units.items()}, {}
        )
    began, fold = clock(), _Fold(spec, samples)
    folds = [fold]
    while isinstance(fold.data, FiniteData) and fold.data.next_fold():
        fold = _Fold(spec, samples, fold.data)
        folds.append(fold)
    validated = None if fold.validated is None else _means([each.validated or {} for each in folds])
    scope = f"validation set, after {fold.seen} training samples"
    if len(folds) > 1:
        scope = f"mean of {len(folds)} folds, each: {scope}"
    seconds = Metric(value=clock() - began, unit="s", scope="rank 0", provenance="clock")
    first = (folds[0].validated or {}).get(name)
    metrics = {"quality": _quality(name, validated, scope), "quality_seconds": seconds}
    return QualityPhase(metrics, _means([each.logged for each in folds]), learning=folds[0].budget.curve(first))


class _Fold:
    """A fresh module, trained on `samples` and validated; `data` is the previous fold's data module."""

    def __init__(self, spec: RunSpec, samples: int, data: Any = None) -> None:
        loop = make_loop(spec, TrainingLength(samples=samples))
        self.budget = SampleBudget(samples, spec.world_size, loop.optimizer_steps)
        loop.drive(self.budget, data=data)
        if loop.teardown_error is not None:
            raise loop.teardown_error  # the failed hook might have changed the module
        bad_step = self.budget.first_bad_step()
        if bad_step is not None:
            raise Diverged(f"the loss was not finite at step {bad_step} of the quality phase")
        self.validated = loop.validate()
        self.logged = loop.logged | (self.validated or {})
        self.data, self.seen = loop.data, self.budget.seen


def _means(folds: list[dict[str, float]]) -> dict[str, float]:
    return {name: sum(fold[name] for fold in folds) / len(folds) for name in folds[0]}


def _quality(name: str, validated: dict[str, float] | None, scope: str) -> Metric:
    if validated is None:
        reason = "the data or the module has no validation loop"
    elif name not in validated:
        logs = ", ".join(sorted(validated)) or "nothing"
        reason = f"the validation loop does not log {name!r} (it logs: {logs}): set measure.quality_metric"
    elif not math.isfinite(validated[name]):
        reason = f"{name} is {validated[name]}"
    else:
        return Metric(value=validated[name], unit=name, scope=scope)
    return Metric(value=None, unit=name, reason=reason, scope=scope)
