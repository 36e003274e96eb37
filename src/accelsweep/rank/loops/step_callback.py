"""Our one callback for Lightning's Trainer: it shows steps to a listener and validations to an examiner."""

from __future__ import annotations

import math
from typing import Any

import lightning.pytorch as pl

from accelsweep.base.errors import InputError
from accelsweep.rank.loops.loop import NO_LOSS, NO_VALIDATION, Examiner, Listener, ValidationTime, loss_in, on_meta
from accelsweep.rank.loops.loss_scale import LossScale
from accelsweep.rank.loops.number_formats import refuse_other_formats
from accelsweep.rank.loops.sample_count import OptimizerSteps, SampleCount, may_be_endless, no_batch
from accelsweep.state.pulse import Pulse
from accelsweep.workloads.module_data import ModuleData


class StepCallback(pl.Callback):
    """Shows steps to the listener: `begin` before the first batch, `step_done` after each, stop when it has enough.

    An examiner, if there is one, gets the logged values of each validation.
    """

    def __init__(self, batch_size: int, pulse: Pulse, ranks: int = 1, run_seconds: float | None = None) -> None:
        """`batch_size` is the size that the first batch of each rank must have; `pulse` gets a beat for each step.

        `run_seconds` is the time limit of the run.
        """
        self._run_seconds = run_seconds
        self._validation: ValidationTime | None = None
        self._pulse = pulse
        self.listener: Listener | None = None
        self.examiner: Examiner | None = None
        self.loss_scale = LossScale("")
        self.epoch_ends: list[int] = []
        self.example: Any = None
        self.count = SampleCount(batch_size, ranks)
        self.optimizer_steps = OptimizerSteps()
        self._steps = 0
        self._has_loss = self._ended = False

    def on_train_start(self, trainer: pl.Trainer, module: pl.LightningModule) -> None:
        """Begin. Raises InputError where there is an examiner and nothing to validate with.

        Raises Unsupported where the module's numbers are not those of the Trainer's precision.
        """
        assert self.listener is not None
        if self.examiner is not None and not trainer.enable_validation:
            raise InputError(NO_VALIDATION)
        refuse_other_formats(module, str(trainer.precision))
        optimizer = trainer.optimizers[0] if len(trainer.optimizers) == 1 else None
        self.loss_scale = LossScale(trainer.precision, getattr(trainer.precision_plugin, "scaler", None), optimizer)
        for schedule in trainer.lr_scheduler_configs:
            schedule.strict = False  # what it monitors is logged by the validation, which has a phase of its own
        wrappers = [] if module.automatic_optimization else trainer.strategy._lightning_optimizers
        self.optimizer_steps.watch(trainer.optimizers, trainer.accumulate_grad_batches, wrappers)
        self._has_loss = self._ended = False
        self.listener.begin()

    def check_ending(self, trainer: pl.Trainer, module: pl.LightningModule) -> None:
        """Raise InputError where training ended by itself, or where there was nothing to train with."""
        if not self._steps:
            raise InputError(no_batch(trainer.train_dataloader))
        if not self._ended:
            raise InputError(
                f"training ended by itself after {self._steps} steps, before all was measured: remove the cause, "
                "such as self.trainer.should_stop"
            )
        if not self._has_loss and module.automatic_optimization:
            raise InputError(NO_LOSS)

    def on_train_batch_start(self, *_: Any) -> None:
        """Note that a batch begins."""
        self.optimizer_steps.batch_begins(self._steps)

    def on_after_backward(self, _: pl.Trainer, module: pl.LightningModule) -> None:
        """Note that the batch's gradients stand beside those that wait."""
        if module.automatic_optimization:  # else they belong to an optimiser that only their parameters tell
            self.optimizer_steps.gradients_added()

    def on_before_zero_grad(self, _: pl.Trainer, module: pl.LightningModule, *__: Any) -> None:
        """Note that no gradients wait any more."""
        if module.automatic_optimization:
            self.optimizer_steps.gradients_dropped()

    def on_before_optimizer_step(self, _: pl.Trainer, __: pl.LightningModule, optimizer: Any) -> None:
        """Note a step, one that a gradient scaler is about to skip too."""
        self.optimizer_steps.stepped(optimizer)

    def on_train_batch_end(self, trainer: pl.Trainer, module: Any, outputs: Any, batch: Any, *_: Any) -> None:
        """Show a finished step."""
        assert self.listener is not None
        samples = self.count.of(batch, trainer.train_dataloader, module)
        if self._steps == 0:
            self.example = on_meta(batch)
        self._steps += 1
        loss = loss_in(outputs)
        self._has_loss = self._has_loss or loss is not None
        enough = self.listener.step_done(samples, None if loss is None else loss.detach())
        self._pulse.beat(rests=enough or trainer.is_last_batch)  # after the last batch the loader starts anew
        if enough:
            trainer.should_stop = self._ended = True

    def on_validation_start(self, *_: Any) -> None:
        """Rest: validation has no steps."""
        self._pulse.rest()
        self._validation = ValidationTime(self._run_seconds)

    def on_validation_batch_end(
        self, trainer: pl.Trainer, module: Any, outputs: Any, batch: Any, batch_idx: int, dataloader_idx: int = 0
    ) -> None:
        """Raise InputError where a loader that states no length does not end."""
        del outputs, batch
        combined = trainer._evaluation_loop._combined_loader
        limited = not math.isinf(trainer.num_val_batches[dataloader_idx])
        if self._validation is None or combined is None or limited:
            return
        loaders = combined.flattened
        if may_be_endless(loaders[dataloader_idx]):
            owner = trainer.datamodule if trainer.datamodule is not None else module  # type: ignore[attr-defined]
            owner = module if isinstance(owner, ModuleData) else owner
            position = None if len(loaders) == 1 else dataloader_idx
            self._validation.look(batch_idx + 1, owner, position, "set +trainer.limit_val_batches=NUMBER, ")

    def on_validation_end(self, trainer: pl.Trainer, *_: Any) -> None:
        """Show the logged values of validation to the examiner."""
        if self.examiner is not None:
            logged = {name: float(value) for name, value in trainer.callback_metrics.items()}
            if self.examiner.examined(logged):
                trainer.should_stop = self._ended = True

    def on_train_epoch_end(self, trainer: pl.Trainer, *_: Any) -> None:
        """Note the end of a pass over the training data, which may be where the listener had enough."""
        self.epoch_ends.append(self._steps)
        self.count.pass_ended(complete=not self._ended or trainer.is_last_batch)
