"""Quality in a phase of its own: a fresh module, a fixed number of samples, the validation loop.

It is apart from the timed window, whose steps are as many as fit into some seconds. In the window a faster setting
would train on more samples and look better. Here every setting trains on the same number, with the repeat's seed, so
that quality pairs by seed. Data that hold out one part after the other make it a cross-validation. Each part has a
fresh module, and the set is read and placed once.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from accelsweep.devices.clock import Clock, monotonic
from accelsweep.measure.window import Losses, first_not_finite
from accelsweep.metrics import Metric
from accelsweep.results import Doubt
from accelsweep.worker.errors import Diverged
from accelsweep.worker.loops.factory import make_loop
from accelsweep.worker.loops.loop import Length
from accelsweep.worker.loops.sample_count import OptimizerSteps
from accelsweep.worker.run_spec import RunSpec
from accelsweep.workloads.data_module import FiniteData


class SampleBudget:
    """A listener that has enough after a fixed number of samples on all ranks, in whole optimiser steps."""

    def __init__(self, samples: int, ranks: int, optimizer_steps: OptimizerSteps | None = None) -> None:
        """`samples` is the number for all `ranks` together; an optimiser step in the making is finished."""
        self._samples, self._ranks, self._optimizer_steps = samples, ranks, optimizer_steps
        self._losses = Losses()
        self.steps = self.seen = 0

    def begin(self) -> None:
        """Nothing to do before the first batch."""

    def step_done(self, samples: int, loss: Any) -> bool:
        """Count; True once every rank together has seen enough. Ranks have equal batches, so they agree."""
        self._losses.add(loss)
        self.steps += 1
        self.seen += samples * self._ranks
        begun = self._optimizer_steps is not None and self._optimizer_steps.unfinished
        return self.seen >= self._samples and not begun

    def first_bad_step(self) -> int | None:
        """Return the first step whose loss was NaN or infinite, or None. Waits for the device."""
        return first_not_finite(self._losses.values())


@dataclass(frozen=True)
class QualityPhase:
    """The phase's metrics, the module's other logged values, and the doubts about the phase."""

    metrics: dict[str, Metric]
    logged: dict[str, float]
    doubts: tuple[Doubt, ...] = ()


def measure_quality(spec: RunSpec, clock: Clock = monotonic) -> QualityPhase:
    """Train on `measure.quality_samples` samples and validate. Raises Diverged, and the errors of the user's code."""
    samples, name = spec.config.measure.quality_samples, spec.config.measure.quality_metric or "quality"
    if samples is None:
        return QualityPhase(_absent(name, "not asked for: measure.quality_samples is null"), {})
    began, fold = clock(), _Fold(spec, samples)
    folds = [fold]
    while _next_fold(fold.data):
        fold = _Fold(spec, samples, fold.data)
        folds.append(fold)
    validated = None if fold.validated is None else _means([each.validated or {} for each in folds])
    after = f"validation set, after {fold.seen} training samples"
    scope = after if len(folds) == 1 else f"mean of {len(folds)} folds, each: {after}"
    seconds = Metric(value=clock() - began, unit="s", scope="rank 0", provenance="clock")
    metrics = {"quality": _quality(name, validated, scope), "quality_seconds": seconds}
    return QualityPhase(metrics, _means([each.logged for each in folds]))


class _Fold:
    """The training of a fresh module on `samples`, and its validation; `data` is that of the fold before."""

    def __init__(self, spec: RunSpec, samples: int, data: Any = None) -> None:
        loop = make_loop(spec, Length(samples=samples))
        budget = SampleBudget(samples, spec.world_size, loop.optimizer_steps)
        loop.drive(budget, data=data)
        if loop.late_error is not None:
            raise loop.late_error  # nobody knows what the hook that failed would have done to the module
        bad = budget.first_bad_step()
        if bad is not None:
            raise Diverged(f"the loss was not finite at step {bad} of the quality phase")
        self.validated = loop.validate()
        self.logged = loop.logged | (self.validated or {})
        self.data, self.seen = loop.data, budget.seen


def _next_fold(data: Any) -> bool:
    """Let `data` hold out its next part; False where it has no further one."""
    return isinstance(data, FiniteData) and data.next_fold()


def _means(folds: list[dict[str, float]]) -> dict[str, float]:
    return {name: sum(fold[name] for fold in folds) / len(folds) for name in folds[0]}


def _absent(name: str, reason: str) -> dict[str, Metric]:
    return {
        "quality": Metric(value=None, unit=name, reason=reason),
        "quality_seconds": Metric(value=None, unit="s", reason=reason),
    }


def _quality(name: str, validated: dict[str, float] | None, scope: str) -> Metric:
    if validated is None:
        reason = "the data or the module has no validation loop"
    elif name not in validated:
        logs = ", ".join(sorted(validated)) or "nothing"
        reason = f"the validation loop logs no {name!r} (it logs: {logs}): set measure.quality_metric"
    elif not math.isfinite(validated[name]):
        reason = f"{name} is {validated[name]}"
    else:
        return Metric(value=validated[name], unit=name, scope=scope)
    return Metric(value=None, unit=name, reason=reason, scope=scope)
