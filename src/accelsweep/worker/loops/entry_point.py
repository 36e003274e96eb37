"""`loop: entry`: the first `Trainer.fit` of the user's own script, measured without changing the script.

`observe_trainers` patches Lightning's Trainer in this process: it adds our callback and removes whatever would end the
training or write files. Once training is set up, the fit loop hands over to `measure`. Every phase of the measurement
then continues the same training, and `Measured` ends the script when all phases have finished.
"""

from __future__ import annotations

import copy
import functools
import inspect
import math
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, suppress
from typing import Any

import lightning.pytorch as pl
import torch
from lightning.pytorch.callbacks import Callback, EarlyStopping, ModelCheckpoint, ModelSummary, ProgressBar
from lightning.pytorch.loops.fit_loop import _FitLoop
from torchmetrics import Metric

from accelsweep.devices.clock import monotonic
from accelsweep.devices.kinds import timed_device
from accelsweep.errors import InputError
from accelsweep.heartbeat import Heartbeat
from accelsweep.results import ScriptTrainer
from accelsweep.worker.loops.execution import ModuleExecution, without_options
from accelsweep.worker.loops.loop import (
    Measured,
    StepListener,
    ValidationListener,
    check_first_batch,
    first_learning_rate,
)
from accelsweep.worker.loops.trainer_loop import (
    STOPPING_CALLBACKS,
    StepCallback,
    TrainerLoop,
    optimizer_names,
    strip_callbacks,
    without_types,
)
from accelsweep.worker.loops.trainer_replacement import ScratchLogger
from accelsweep.worker.rank_setup import RankPlace
from accelsweep.worker.run_spec import RunSpec

LEFT_OUT = (*STOPPING_CALLBACKS, ProgressBar, ModelSummary)
"""Callbacks that are removed from a measured Trainer, because they write files, end the training or print."""

REPLACED: Mapping[str, Any] = {
    "enable_checkpointing": False,
    "enable_progress_bar": False,
    "enable_model_summary": False,
    "profiler": None,
    "barebones": False,
    "fast_dev_run": False,
    "overfit_batches": 0.0,
    "limit_train_batches": None,
    "num_sanity_val_steps": 0,
    "val_check_interval": None,
    "check_val_every_n_epoch": 1,
    "min_epochs": None,
    "min_steps": None,
    "max_time": None,
}
"""Arguments that make a measured Trainer train for as long as the measurement lasts, without writing or printing."""


_COUNTERS = ("step", "global_step", "epoch")
"""Values that Lightning logs itself; a ModelCheckpoint monitors them in order to keep the latest step."""


_running: list[EntryLoop] = []


def running_loop() -> EntryLoop:
    """Return the loop of this process's entry point; its training must have begun."""
    (loop,) = _running
    return loop


class _EntryCallback(StepCallback):
    """Reports the steps of each phase of the measurement, counted from the start of the phase."""

    def __init__(self, spec: RunSpec, execution: ModuleExecution) -> None:
        assert spec.config.entry is not None
        heartbeat = Heartbeat(spec.heartbeat(RankPlace.of(spec).rank))
        samples = spec.config.entry.samples_per_step
        super().__init__(None, heartbeat, spec.world_size, spec.run_seconds, samples, execution)
        self._spec = spec
        self._seen_first = False
        self.began_at = self.first_step_seconds = math.nan

    def begin(self, listener: StepListener) -> None:
        if math.isnan(self.began_at):
            self._device.synchronise()
            self.began_at = monotonic()
        self._steps = 0
        self.epoch_ends.clear()
        self.optimizer_steps.restart()
        super().begin(listener)

    def on_train_start(self, trainer: pl.Trainer, module: pl.LightningModule) -> None:
        super().on_train_start(trainer, module)
        self._planned_steps = trainer.estimated_stepping_batches
        self._device = timed_device(trainer.strategy.root_device)

    def on_train_batch_start(self, trainer: pl.Trainer, *rest: Any) -> None:
        super().on_train_batch_start(trainer, *rest)
        if trainer.global_step >= self._planned_steps:
            trainer.strategy.lr_scheduler_configs = []  # some schedules raise beyond the length they were built for

    def on_train_batch_end(self, trainer: pl.Trainer, module: Any, outputs: Any, batch: Any, *rest: Any) -> None:
        super().on_train_batch_end(trainer, module, outputs, batch, *rest)
        if self._seen_first:
            return
        self._seen_first = True
        self._device.synchronise()
        self.first_step_seconds = monotonic() - self.began_at
        check_first_batch(self._spec, self.batch_samples)


class _EntryFitLoop(_FitLoop):
    """Lightning's fit loop, except that it trains for as long as the measurement lasts.

    Learning-rate schedules still see the training length that the script asked for.
    """

    def __init__(self, replaced: _FitLoop, measure: Callable[[pl.Trainer], None]) -> None:
        super().__init__(replaced.trainer, max_epochs=replaced.max_epochs)
        self.epoch_loop = replaced.epoch_loop
        self._max_steps, self.epoch_loop.max_steps = replaced.max_steps, -1
        self.epoch_loop.min_steps = None
        self._measure = measure

    @property
    def max_steps(self) -> int:
        """The number of optimiser steps that the script asked for."""
        return self._max_steps

    @property
    def done(self) -> bool:
        """Whether the current phase has ended or there are no batches."""
        return self.max_batches == 0 or self.trainer.should_stop

    def run(self) -> None:
        """Set up training as Lightning does, measure, and end the script."""
        self.setup_data()
        self.reset()
        self.on_run_start()
        self._measure(self.trainer)
        raise Measured

    def train_phase(self) -> None:
        """Train, epoch by epoch, until `should_stop` is set."""
        with suppress(StopIteration):  # the data ended early, which the callback reports
            while not self.done:
                self.on_advance_start()
                self.advance()
                self.on_advance_end()

    def _iteration_based_training(self) -> bool:
        return False


class EntryLoop(TrainerLoop):
    """The training that the user's script set up, which every phase continues."""

    _callback: _EntryCallback

    def __init__(self, trainer: pl.Trainer, callback: _EntryCallback, limit_val_batches: int | float) -> None:
        """`limit_val_batches` is the limit that the script gave its Trainer."""
        super().__init__("entry", trainer, callback)
        self._limit_val_batches = limit_val_batches
        self.optimizer = "none"
        self.teardown_error: BaseException | None = None

    @property
    def began_at(self) -> float:
        """The monotonic time in seconds at which training began, before any phase."""
        return self._callback.began_at

    @property
    def first_step_seconds(self) -> float:
        """The duration of the first step of the training."""
        return self._callback.first_step_seconds

    @property
    def data(self) -> Any:
        """The script's data module; None if the script has none."""
        return self._trainer.datamodule  # type: ignore[attr-defined]

    @property
    def epoch_samples(self) -> int | None:
        """The number of samples in one pass over the training data."""
        return self._epoch_samples(self.data)

    @property
    def learning_rate(self) -> float | None:
        """The current learning rate of the first parameter group."""
        return first_learning_rate(self._trainer.optimizers)

    def drive(self, listener: StepListener, validation: ValidationListener | None = None, data: Any = None) -> None:
        """Continue the training until `listener` ends the phase."""
        assert validation is None, "an entry point validates only after a phase has ended"
        assert data is None, "an entry point loads its own data"
        trainer: Any = self._trainer
        profiler = trainer.profiler
        trainer.should_stop = False
        with ExitStack() as self._without_exchange:
            self._callback.begin(listener)
            trainer.fit_loop.train_phase()
        trainer.profiler = profiler
        self._callback.check_ending(trainer, self.module)
        self.optimizer = optimizer_names(trainer)
        self._keep_logged()

    def validate(self) -> dict[str, float] | None:
        """Run the script's validation and return all values logged so far; None if the script has no validation."""
        trainer = self._trainer
        trainer.limit_val_batches = self._limit_val_batches
        try:
            if not trainer.enable_validation:
                return None
            trainer.validating = True
            trainer.fit_loop.epoch_loop.val_loop.run()
        finally:
            trainer.training = True
            trainer.limit_val_batches = 0
        self._keep_logged()
        return dict(self.logged)

    def meta_module(self) -> pl.LightningModule:
        """Return a copy of the module on the meta device, whose metrics compute nothing."""
        module = self.module
        memo: dict[int, Any] = {id(self._trainer): self._trainer}
        for parameter in module.parameters():
            memo[id(parameter)] = torch.nn.Parameter(parameter.detach().to("meta"), parameter.requires_grad)
        for buffer in module.buffers():
            memo[id(buffer)] = buffer.to("meta")
        copied = copy.deepcopy(module, memo)
        without_options(copied)
        for part in copied.modules():
            if isinstance(part, Metric):  # many read values, which meta tensors do not have
                for name in ("forward", "update", "compute"):
                    setattr(part, name, _no_value)
        return copied


def _no_value(*_: Any, **__: Any) -> torch.Tensor:
    return torch.zeros((), device="meta")


def observe_trainers(spec: RunSpec, measure: Callable[[ScriptTrainer], None]) -> None:
    """Make this process's first `Trainer.fit` call `measure` in place of training, and then raise `Measured`."""
    init, fit = pl.Trainer.__init__, pl.Trainer.fit
    signature, fit_signature = inspect.signature(init), inspect.signature(fit)
    execution = ModuleExecution(spec.config)
    callback = _EntryCallback(spec, execution)
    left_out: dict[pl.Trainer, list[Callback]] = {}

    @functools.wraps(init)
    def observed_init(*arguments: Any, **options: Any) -> None:
        given = signature.bind(*arguments, **options)
        trainer = given.arguments.pop("self")
        limit_val_batches = given.arguments.get("limit_val_batches")
        left_out[trainer] = []
        init(trainer, **_measured_arguments(spec, given.arguments, left_out[trainer]))
        trainer.limit_val_batches = 0  # validation runs only in `EntryLoop.validate`

        def measure_training(trainer: pl.Trainer) -> None:
            _running.append(EntryLoop(trainer, callback, 1.0 if limit_val_batches is None else limit_val_batches))
            measure(_describe(left_out[trainer]))

        trainer.fit_loop = _EntryFitLoop(trainer.fit_loop, measure_training)

    @functools.wraps(fit)
    def observed_fit(trainer: pl.Trainer, *arguments: Any, **options: Any) -> None:
        if _running:
            raise Measured
        given = fit_signature.bind(trainer, *arguments, **options)
        if given.arguments.pop("ckpt_path", None) is not None:
            sys.stderr.write("accelsweep: left out ckpt_path, because a measured training never resumes\n")
        strip_callbacks(given.arguments["model"], LEFT_OUT, left_out[trainer])
        trainer.callbacks.append(callback)  # type: ignore[attr-defined]
        with execution:
            fit(**given.arguments)

    pl.Trainer.__init__ = observed_init  # type: ignore[method-assign]
    pl.Trainer.fit = observed_fit  # type: ignore[method-assign, assignment]


def check_effective(spec: RunSpec) -> None:
    """Raise InputError if the script's Trainer trains differently from what the setting asks for."""
    trainer = running_loop()._trainer
    config, device = spec.config, trainer.strategy.root_device.type
    differences = {
        "devices and num_nodes": (f"{spec.world_size} ranks", f"{trainer.world_size} ranks"),
        "precision": (config.precision, str(trainer.precision)),
        "accelerator": (config.accelerator, config.accelerator if (device == "cpu") != config.on_gpu else device),
    }
    for axis, (asked, found) in differences.items():
        if asked != found:
            raise InputError(
                f"{axis}: the setting asks for {asked}, but the script's Trainer trains with {found}: in "
                "accelsweep.yaml, name the project's own key for the axis under axes, or its own values under values"
            )


def _describe(left_out: Sequence[Callback]) -> ScriptTrainer:
    names = tuple(dict.fromkeys(type(callback).__name__ for callback in left_out))
    for kind in (ModelCheckpoint, EarlyStopping):
        for callback in left_out:
            if isinstance(callback, kind) and callback.monitor not in (None, *_COUNTERS):
                return ScriptTrainer(callback.monitor, "max" if callback.mode == "max" else "min", names)
    return ScriptTrainer(left_out=names)


def _measured_arguments(spec: RunSpec, given: Mapping[str, Any], left_out: list[Callback]) -> dict[str, Any]:
    """Return the arguments for a measured Trainer, based on those `given` by the script.

    Callbacks that are removed are added to `left_out`.
    """
    assert spec.config.entry is not None
    callbacks, accumulate = given.get("callbacks") or [], spec.config.gradient_accumulation
    callbacks = [callbacks] if isinstance(callbacks, Callback) else list(callbacks)
    return {
        **given,
        **REPLACED,
        "callbacks": without_types(callbacks, LEFT_OUT, left_out),
        "logger": ScratchLogger(spec.scratch()),
        "default_root_dir": str(spec.scratch()),
        **spec.config.entry.trainer,
        **({} if accumulate is None else {"accumulate_grad_batches": accumulate}),
    }
