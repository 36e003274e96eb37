"""Our one callback for Lightning's Trainer: it shows steps to a listener and validations to an examiner."""

from __future__ import annotations

from typing import Any

import lightning.pytorch as pl

from accelsweep.base.errors import InputError
from accelsweep.rank.loops.loop import NO_LOSS, NO_VALIDATION, Examiner, Listener, loss_in, on_meta
from accelsweep.rank.loops.loss_scale import LossScale
from accelsweep.rank.loops.number_formats import refuse_other_formats
from accelsweep.rank.loops.sample_count import SampleCount
from accelsweep.state.pulse import Pulse


class StepCallback(pl.Callback):
    """Shows steps to the listener: `begin` before the first batch, `step_done` after each, stop when it has enough.

    An examiner, if there is one, gets the logged values of each validation.
    """

    def __init__(self, batch_size: int, pulse: Pulse) -> None:
        """`batch_size` is the size that the first batch must have; `pulse` gets a beat for each step."""
        self._pulse = pulse
        self.listener: Listener | None = None
        self.examiner: Examiner | None = None
        self.loss_scale = LossScale("")
        self.epoch_ends: list[int] = []
        self.example: Any = None
        self._count = SampleCount(batch_size)
        self._steps = 0
        self._has_loss = self._ended = self._owes_validation = False

    @property
    def finished(self) -> bool:
        """Whether the listener had enough, and the examiner has seen the validation that follows."""
        return self._ended and not self._owes_validation

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
        self._has_loss = self._ended = self._owes_validation = False
        self.listener.begin()

    def check_ending(self, module: pl.LightningModule) -> None:
        """Raise InputError where training ended by itself, or where there was nothing to train with."""
        if not self._steps:
            raise InputError("the training loader gave no batch: lower batch_size, or keep short batches")
        if not self._ended:
            raise InputError(
                f"training ended by itself after {self._steps} steps, before all was measured: remove the cause, "
                "such as self.trainer.should_stop"
            )
        if not self._has_loss and module.automatic_optimization:
            raise InputError(NO_LOSS)

    def on_train_batch_end(self, trainer: pl.Trainer, module: Any, outputs: Any, batch: Any, *_: Any) -> None:
        """Show a finished step."""
        assert self.listener is not None
        samples = self._count.of(batch, trainer.train_dataloader, module)
        if self._steps == 0:
            self.example = on_meta(batch)
        self._steps += 1
        loss = loss_in(outputs)
        self._has_loss = self._has_loss or loss is not None
        enough = self.listener.step_done(samples, None if loss is None else loss.detach())
        self._pulse.beat(rests=enough or trainer.is_last_batch)  # after the last batch the loader starts anew
        if enough:
            trainer.should_stop = self._ended = True
            self._owes_validation = self.examiner is not None

    def on_validation_start(self, *_: Any) -> None:
        """Rest: validation has no steps."""
        self._pulse.rest()

    def on_validation_end(self, trainer: pl.Trainer, *_: Any) -> None:
        """Show the logged values of validation to the examiner."""
        if self.examiner is not None:
            self._owes_validation = False
            logged = {name: float(value) for name, value in trainer.callback_metrics.items()}
            if self.examiner.examined(logged):
                trainer.should_stop = self._ended = True

    def on_train_epoch_end(self, *_: Any) -> None:
        """Note the end of a pass over the training data."""
        self.epoch_ends.append(self._steps)
