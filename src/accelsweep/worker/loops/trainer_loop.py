"""The callback, profiler and read-backs shared by all loops that use a Lightning Trainer, whoever built it.

Works with Lightning 2.0 or later, because it also measures the user's own script in another environment.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Sequence
from contextlib import ExitStack
from typing import Any

import lightning.pytorch as pl
import torch
from lightning.pytorch.callbacks import Checkpoint, EarlyStopping, Timer
from lightning.pytorch.profilers import Profiler
from torch.nn.parallel import DistributedDataParallel

from accelsweep.errors import InputError, Unsupported
from accelsweep.heartbeat import Heartbeat
from accelsweep.measure.breakdown import PhaseTimer
from accelsweep.worker.loops.execution import ModuleExecution
from accelsweep.worker.loops.loop import (
    NO_LOSS,
    NO_VALIDATION,
    StepListener,
    ValidationListener,
    ValidationTimeout,
    extract_loss,
    to_meta,
)
from accelsweep.worker.loops.sample_count import OptimizerSteps, SampleCounter, may_be_endless, no_batch_message
from accelsweep.worker.loops.token_count import TokenCounter
from accelsweep.worker.loops.trainer_replacement import LossScale
from accelsweep.workloads.data_module import ModuleData

_PHASES = {
    "train_dataloader_next": "data_wait",
    "batch_to_device": "host_to_device",
    "training_step": "forward",
    "backward": "backward",
    "optimizer_zero_grad": "optimizer",
    "optimizer_step": "overhead",
}

_OWNERS = {
    "batch_to_device": "[Strategy]",
    "training_step": "[Strategy]",
    "backward": "[Strategy]",
    "optimizer_zero_grad": "[LightningModule]",
    "optimizer_step": "[LightningModule]",
}
"""Hooks that several objects define -> the outermost of these objects, whose call is the only one that is timed."""


class PhaseProfiler(Profiler):
    """A Lightning profiler that reports actions as phases of a step."""

    def __init__(self, timer: PhaseTimer) -> None:
        """All phases are reported to `timer`."""
        super().__init__()
        self._timer = timer
        self._depths: list[int] = []

    def start(self, action_name: str) -> None:
        """Enter the action's phase, if it belongs to one."""
        phase = _phase_of(action_name)
        if phase is not None:
            self._depths.append(self._timer.depth)
            self._timer.enter(phase)

    def stop(self, action_name: str) -> None:
        """Leave the phase and all phases nested in it."""
        if _phase_of(action_name) is not None:
            self._timer.leave_to(self._depths.pop())
        elif action_name.startswith("[LightningModule]") and action_name.endswith(".on_before_optimizer_step"):
            self._timer.enter("optimizer")


def _phase_of(action_name: str) -> str | None:
    hook = action_name.rpartition(".")[2]
    return _PHASES.get(hook) if action_name.startswith(_OWNERS.get(hook, "[")) else None


_DTYPES = {
    "64-true": (torch.float64,),
    "32-true": (torch.float32,),
    "bf16-true": (torch.bfloat16,),
    "16-true": (torch.float16,),
    "bf16-mixed": (torch.float32, torch.bfloat16),
    "16-mixed": (torch.float32, torch.float16),
}
"""Precision -> allowed dtypes of trained parameters.

With mixed precision, a strategy may keep the float32 master weights elsewhere.
"""


def require_dtypes(module: pl.LightningModule, precision: str) -> None:
    """Raise Unsupported if `module` trains a parameter whose dtype is not allowed for `precision`."""
    allowed = _DTYPES.get(precision)
    if allowed is None:
        return
    for parameter in module.parameters():
        if parameter.requires_grad and parameter.is_floating_point() and parameter.dtype not in allowed:
            other = next((name for name, dtypes in _DTYPES.items() if dtypes == (parameter.dtype,)), None)
            raise Unsupported(
                f"precision={precision}, but {type(module).__name__} trains parameters of {parameter.dtype}, which is "
                "a different setting: remove torch.set_default_dtype or the cast from its code"
                + (f", or set precision={other}" if other else "")
            )


class StepCallback(pl.Callback):
    """Reports steps to `listener` and validations to `validation`, and stops the Trainer when either requests it."""

    def __init__(
        self,
        batch_size: int | None,
        heartbeat: Heartbeat,
        ranks: int = 1,
        run_seconds: float | None = None,
        samples: int | None = None,
        execution: ModuleExecution | None = None,
    ) -> None:
        """`batch_size` is the number of samples in each rank's first batch; None accepts any.

        `execution` stops watching after the first step. `run_seconds` is the run's time limit.

        If `samples` is given, each batch is taken to contain that many.
        """
        self._run_seconds = run_seconds
        self._validation_timeout: ValidationTimeout | None = None
        self._heartbeat, self.execution = heartbeat, execution
        self.listener: StepListener | None = None
        self.validation: ValidationListener | None = None
        self.loss_scale = LossScale("")
        self.epoch_ends: list[int] = []
        self.example: Any = None
        self.counter = SampleCounter(batch_size, ranks, samples)
        self.optimizer_steps, self.tokens = OptimizerSteps(), TokenCounter()
        self._steps = self.batch_samples = 0
        self._has_loss = self._ended = self._owes_validation = False

    @property
    def finished(self) -> bool:
        """Whether the listener ended the phase and the validation that follows has finished."""
        return self._ended and not self._owes_validation

    def on_train_start(self, trainer: pl.Trainer, module: pl.LightningModule) -> None:
        """Begin the phase.

        Raises InputError if validation is requested and there is no validation loop, and Unsupported if the module's
        dtypes do not match the Trainer's precision.
        """
        if self.validation is not None and not trainer.enable_validation:
            raise InputError(NO_VALIDATION)
        require_dtypes(module, str(trainer.precision))
        optimizer = trainer.optimizers[0] if len(trainer.optimizers) == 1 else None
        self.loss_scale = LossScale(trainer.precision, getattr(trainer.precision_plugin, "scaler", None), optimizer)
        for schedule in trainer.lr_scheduler_configs:
            schedule.strict = False  # the value it monitors may only be logged in validation, which may not run
        wrappers = [] if module.automatic_optimization else trainer.strategy._lightning_optimizers
        self.optimizer_steps.watch(trainer.optimizers, trainer.accumulate_grad_batches, wrappers)
        if self.listener is not None:
            self.begin(self.listener)

    def begin(self, listener: StepListener) -> None:
        """Begin a phase that `listener` ends."""
        self.listener = listener
        self._has_loss = self._ended = self._owes_validation = False
        self.tokens.restart()
        listener.begin()

    def check_ending(self, trainer: pl.Trainer, module: pl.LightningModule) -> None:
        """Raise InputError if training ended by itself, or if there were no batches or no loss."""
        if not self._steps:
            raise InputError(no_batch_message(trainer.train_dataloader))
        if not self._ended:
            raise InputError(
                f"training ended by itself after {self._steps} steps, before the measurement was complete: remove "
                "the cause, such as self.trainer.should_stop"
            )
        if not self._has_loss and module.automatic_optimization:
            raise InputError(NO_LOSS)

    def on_train_batch_start(self, *_: Any) -> None:
        """Report the batch to `optimizer_steps`."""
        self.optimizer_steps.batch_begins(self._steps)

    def on_after_backward(self, _: pl.Trainer, module: pl.LightningModule) -> None:
        """Report accumulated gradients to `optimizer_steps`."""
        if module.automatic_optimization:  # otherwise hooks on the parameters report them, per optimiser
            self.optimizer_steps.gradients_added()

    def on_before_zero_grad(self, _: pl.Trainer, module: pl.LightningModule, *__: Any) -> None:
        """Report dropped gradients to `optimizer_steps`."""
        if module.automatic_optimization:
            self.optimizer_steps.gradients_dropped()

    def on_before_optimizer_step(self, _: pl.Trainer, __: pl.LightningModule, optimizer: Any) -> None:
        """Report a step to `optimizer_steps`, even if the gradient scaler will skip it."""
        self.optimizer_steps.stepped(optimizer)

    def on_train_batch_end(self, trainer: pl.Trainer, module: Any, outputs: Any, batch: Any, *_: Any) -> None:
        """Report the step to the listener."""
        assert self.listener is not None
        samples = self.batch_samples = self.counter.count(batch, trainer.train_dataloader, module)
        if self._steps == 0:
            self.example = to_meta(batch)
            if self.execution is not None and self.execution.is_watching:
                self.execution.stop()
                self.execution.check()
        self._steps += 1
        self.tokens.add(batch, module)
        self.tokens.end_step()
        loss = extract_loss(outputs)
        self._has_loss = self._has_loss or loss is not None
        enough = self.listener.step_done(samples, None if loss is None else loss.detach())
        self._heartbeat.step(pauses=enough or trainer.is_last_batch)  # the loader may restart
        if enough:
            trainer.should_stop = self._ended = True
            self._owes_validation = self.validation is not None

    def on_validation_start(self, *_: Any) -> None:
        """Pause the heartbeat, because no steps are performed during validation."""
        self._heartbeat.pause()
        self._validation_timeout = ValidationTimeout(self._run_seconds)

    def on_validation_batch_end(
        self, trainer: pl.Trainer, module: Any, outputs: Any, batch: Any, batch_idx: int, dataloader_idx: int = 0
    ) -> None:
        """Raise InputError if a loader without a length does not end."""
        del outputs, batch
        combined = trainer._evaluation_loop._combined_loader
        limited = not math.isinf(trainer.num_val_batches[dataloader_idx])
        if self._validation_timeout is None or combined is None or limited:
            return
        loaders = combined.flattened
        if may_be_endless(loaders[dataloader_idx]):
            owner = trainer.datamodule if trainer.datamodule is not None else module  # type: ignore[attr-defined]
            owner = module if isinstance(owner, ModuleData) else owner
            position = None if len(loaders) == 1 else dataloader_idx
            self._validation_timeout.check(batch_idx + 1, owner, position, "set +trainer.limit_val_batches=NUMBER, ")

    def on_validation_end(self, trainer: pl.Trainer, *_: Any) -> None:
        """Report the logged values."""
        if self.validation is not None:
            self._owes_validation = False
            logged = {name: float(value) for name, value in trainer.callback_metrics.items()}
            if self.validation.validated(logged):
                trainer.should_stop = self._ended = True

    def on_train_epoch_end(self, trainer: pl.Trainer, *_: Any) -> None:
        """Record the end of a pass over the training data, unless the listener ended the phase during the pass."""
        self.epoch_ends.append(self._steps)
        self.counter.pass_ended(complete=not self._ended or trainer.is_last_batch)


STOPPING_CALLBACKS = (Checkpoint, EarlyStopping, Timer)
"""Module callbacks that a run omits, because it writes no checkpoints and ends with its window."""


def without_types(
    callbacks: Sequence[pl.Callback], types: tuple[type[pl.Callback], ...], left_out: list[pl.Callback]
) -> list[pl.Callback]:
    """Return the callbacks that are of none of the `types`; log the others and add them to `left_out`."""
    for callback in callbacks:
        if isinstance(callback, types):
            left_out.append(callback)
            sys.stderr.write(f"accelsweep: left out {type(callback).__name__}\n")
    return [callback for callback in callbacks if not isinstance(callback, types)]


def strip_callbacks(
    module: pl.LightningModule, types: tuple[type[pl.Callback], ...], left_out: list[pl.Callback]
) -> None:
    """Make `module.configure_callbacks` omit callbacks of the `types`, and add those to `left_out`."""
    if type(module).configure_callbacks is pl.LightningModule.configure_callbacks:
        return
    original = module.configure_callbacks

    def configure_callbacks() -> list[pl.Callback]:
        configured = original()
        callbacks = [configured] if isinstance(configured, pl.Callback) else list(configured)
        return without_types(callbacks, types, left_out)

    module.configure_callbacks = configure_callbacks  # type: ignore[method-assign]


class TrainerLoop:
    """Reads results back from a Trainer while it trains, whoever built it."""

    def __init__(self, name: str, trainer: pl.Trainer, callback: StepCallback) -> None:
        """`callback` is one of the callbacks of `trainer`."""
        self.name, self._trainer, self._callback = name, trainer, callback
        self.device = trainer.strategy.root_device
        self.precision = str(trainer.precision)
        strategy = type(trainer.strategy).__name__
        self.strategy = STRATEGY_NAMES.get(strategy, strategy)
        self.accumulate = int(trainer.accumulate_grad_batches)
        self.logged: dict[str, float] = {}
        self.epoch_ends, self.optimizer_steps = callback.epoch_ends, callback.optimizer_steps
        self.execution, self.tokens = callback.execution, callback.tokens
        self._without_exchange = ExitStack()

    @property
    def module(self) -> pl.LightningModule:
        """The module that the Trainer trains."""
        return self._trainer.lightning_module

    @property
    def example(self) -> Any:
        """The first batch, as empty tensors on the meta device."""
        return self._callback.example

    @property
    def loss_scale(self) -> LossScale:
        """The loss scale and skipped steps since training began."""
        return self._callback.loss_scale

    def _epoch_samples(self, data: Any) -> int | None:
        trainer = self._trainer
        return self._callback.counter.epoch_samples(data, trainer.train_dataloader, trainer.num_training_batches)

    def time_phases(self, timer: PhaseTimer) -> None:
        """Report phases to `timer` through the Trainer's profiler, whose hooks enclose every phase."""
        self._trainer.profiler = PhaseProfiler(timer)  # type: ignore[attr-defined]

    def disable_gradient_sync(self) -> bool:
        """Enter `no_sync` for the rest of this phase; return False if the strategy does not use DDP."""
        model = self._trainer.strategy.model
        if not isinstance(model, DistributedDataParallel):
            return False
        self._without_exchange.enter_context(model.no_sync())
        return True

    def _keep_logged(self) -> None:
        self.logged |= {name: float(value) for name, value in self._trainer.callback_metrics.items()}


def optimizer_names(trainer: pl.Trainer) -> str:
    """Return the class names of the Trainer's optimisers; `none` if there are none."""
    return ", ".join(type(optimizer).__name__ for optimizer in trainer.optimizers) or "none"


STRATEGY_NAMES = {
    "SingleDeviceStrategy": "single_device",
    "DDPStrategy": "ddp",
    "FSDPStrategy": "fsdp",
    "FullySharded": "fsdp",
    "DeepSpeedStrategy": "deepspeed",
    "IndependentRanksStrategy": "independent_ranks",
}
