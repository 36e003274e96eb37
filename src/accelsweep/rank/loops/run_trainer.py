"""Lightning's Trainer for a run: it has the usual answers for modules, and nothing but its listener ends it.

A run ends by its steps or samples. Modules nevertheless ask how long training is, because their schedules stretch over
it: `trainer.max_epochs`, `max_steps` and `estimated_stepping_batches` give the larger of what the config asks for
(`trainer.max_epochs`, `trainer.max_steps`) and what the phase may need. Each phase trains a fresh module, and so a
schedule ends where that phase does.

The module's logged values go into the record, so its logger takes everything and keeps nothing; files that a hook
writes next to it go into a scratch folder. Callbacks that would keep checkpoints or stop training are left out.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import lightning.pytorch as pl
from lightning.pytorch.callbacks import Checkpoint, EarlyStopping, GradientAccumulationScheduler, Timer
from lightning.pytorch.loggers.logger import DummyLogger
from lightning.pytorch.loops.fit_loop import _FitLoop

from accelsweep.base.errors import InputError, Unsupported
from accelsweep.core.cells.config import CellConfig
from accelsweep.core.cells.trainer import asked_length
from accelsweep.rank.loops.sample_count import RARE_STEPS

LEFT_OUT = (Checkpoint, EarlyStopping, Timer)
"""Callbacks of a module's own that a run leaves out: it keeps no checkpoints and ends with its window."""

_WITH_DATA = ("configure_optimizers", "on_fit_start")
"""Hooks before training that may look at the training loader, as Lightning itself does there."""


@dataclass(frozen=True)
class Length:
    """The most that a phase may train: batches of a rank, or samples of all ranks. Neither where nothing bounds it."""

    batches: int | None = None
    samples: int | None = None


class RunTrainer(pl.Trainer):
    """A Trainer without an end of its own, for a phase of this `length`.

    `pass_samples` returns the samples of a pass over the training data on all ranks, or None where nothing tells.
    """

    def __init__(
        self, config: CellConfig, length: Length, pass_samples: Callable[[], int | None], scratch: Path, **settings: Any
    ) -> None:
        """`settings` are the Trainer's. Nothing is sent to the logger unless they say how often."""
        self._config, self._length, self._pass_samples = config, length, pass_samples
        self._asked_epochs, self._asked_steps = asked_length(config.trainer)
        self._looking = False
        super().__init__(logger=ScratchLogger(scratch), **{"log_every_n_steps": 0, **settings})
        self.fit_loop = _UntilStopped(self)

    @property
    def max_epochs(self) -> int:
        """The epochs of training: those that were asked for, or more where the phase may need them.

        Before the training loader can be looked at, it is what was asked for, or the batches of the phase.
        """
        return self._lengths()[0]

    @property
    def max_steps(self) -> int:
        """The optimiser steps of training: those that were asked for, or more where the phase may need them."""
        return self._lengths()[1]

    @property
    def estimated_stepping_batches(self) -> int:
        """The same as `max_steps`."""
        return self._lengths()[1]

    def batches_per_step(self) -> int:
        """Return how many batches nearly every optimiser step will hold. Raises Unsupported where steps will differ.

        Under manual optimisation it is one, as long as nothing else was seen.
        """
        factors = {self.accumulate_grad_batches}
        for callback in self.callbacks:  # type: ignore[attr-defined]
            if isinstance(callback, GradientAccumulationScheduler):
                last = self.max_epochs
                factors = {factor for epoch, factor in callback.scheduling.items() if epoch < last}
        if len(factors) > 1:
            told = ", ".join(map(str, sorted(factors)))
            raise self._no_one_batch(
                f"GradientAccumulationScheduler accumulates {told} batches, by epoch", "one number"
            )
        (factor,) = factors
        batches = self._batches_of_an_epoch() if factor > 1 else None
        if batches is None or math.isinf(batches):
            return factor
        if batches < factor:
            return int(batches)
        rest = int(batches) % factor
        if rest and 1 / math.ceil(batches / factor) > RARE_STEPS:
            seen = f"an epoch of {batches:g} batches makes optimiser steps of {factor} batches and one of {rest}"
            raise self._no_one_batch(seen, "a trainer.accumulate_grad_batches that divides it")
        return factor

    def _no_one_batch(self, why: str, instead: str) -> Unsupported:
        scaling = self._config.learning_rate.lr_scaling
        return Unsupported(
            f"optimizer.lr_scaling={scaling} has no one global batch to follow: {why}. Choose {instead}, or "
            "optimizer.lr_scaling=none"
        )

    def _lengths(self) -> tuple[int, int]:
        """Return the epochs and the optimiser steps of training. Raises InputError where nothing bounds the phase."""
        batches, factor = self._batches_of_an_epoch(), self.accumulate_grad_batches
        if batches is None:
            most = self._planned(math.inf) or -1
            return self._asked_epochs or most, self._asked_steps or most
        planned = self._planned(batches)
        if planned is None and self._asked_epochs is None and self._asked_steps is None:
            raise InputError(
                "the module or a callback asks how long training is, and nothing bounds it: set measure.max_samples, "
                "or trainer.max_epochs"
            )
        endless = math.isinf(batches)
        each = self._batches_of_a_pass() if endless else batches
        if each is None:  # an endless stream that states no length is one epoch
            steps = math.ceil((planned or 0) / factor)
            return self._asked_epochs or 1, max(steps, self._asked_steps or 0)
        per_epoch = math.ceil(each / factor)
        asked = self._asked_epochs or (0 if self._asked_steps is None else math.ceil(self._asked_steps / per_epoch))
        epochs = max(asked, math.ceil((planned or 0) / each), 1)
        if self._asked_steps is None:
            return epochs, epochs * per_epoch
        whole, rest = divmod(planned or 0, each)
        steps = int(whole) * per_epoch + math.ceil(rest / factor)
        return epochs, max(steps, min(self._asked_steps, epochs * per_epoch))

    def _planned(self, batches: float) -> int | None:
        """Return the most batches of this phase, of whose epochs each has `batches`; None where nothing bounds them."""
        if self._length.samples is None:
            return self._length.batches
        spare = self.accumulate_grad_batches - 1  # the last optimiser step is finished
        together = self._config.samples_per_step
        if math.isinf(batches):
            return -(-self._length.samples // together) + spare
        passes, rest = divmod(self._length.samples, self._pass_samples() or int(batches) * together)
        return passes * int(batches) + -(-rest // together) + spare

    def _batches_of_a_pass(self) -> int | None:
        """Return the batches of a pass over the data of an endless stream; None where nothing tells."""
        samples = self._pass_samples()
        return None if samples is None else max(1, samples // self._config.samples_per_step)

    def _batches_of_an_epoch(self) -> float | None:
        """Return the batches of an epoch, infinite for an endless stream; None while the loader is not there yet.

        Where an optimiser is made for training, or a callback begins, the loader is made for it, on every rank.
        """
        if self.fit_loop._combined_loader is None:
            if self._looking or self.lightning_module is None:
                return None
            if self.lightning_module._current_fx_name not in _WITH_DATA:
                return None
            self._looking = True
            try:
                self.fit_loop.setup_data()
            finally:
                self._looking = False
        return max(1, self.num_training_batches)


class _UntilStopped(_FitLoop):
    """Lightning's loop, which ends when it is told to, and not after so many epochs or optimiser steps."""

    def __init__(self, trainer: pl.Trainer) -> None:
        super().__init__(trainer, max_epochs=-1)

    @property
    def done(self) -> bool:
        """Whether there is nothing to train on, or training was told to stop."""
        return self.max_batches == 0 or (self.trainer.should_stop and self._can_stop_early)

    def _iteration_based_training(self) -> bool:
        return False


class ScratchLogger(DummyLogger):
    """A logger that keeps nothing, with a folder for files that hooks write beside their logs."""

    def __init__(self, folder: Path) -> None:
        """`folder` is made when somebody asks for it."""
        super().__init__()
        self._folder = folder

    @property
    def save_dir(self) -> str:
        """The folder."""
        self._folder.mkdir(parents=True, exist_ok=True)
        return str(self._folder)

    @property
    def log_dir(self) -> str:
        """The same folder, by the name that TensorBoardLogger and CSVLogger have for it."""
        return self.save_dir

    @property
    def root_dir(self) -> str:
        """The same folder."""
        return self.save_dir


def of_steps(config: CellConfig, accumulate: int, profile_steps: int = 0) -> Length:
    """Return the length of the phases that are as long as the config's numbers of steps: the longest of them."""
    measure = config.measure
    others = (2 * (measure.probe_steps or 0), measure.matmul_steps or 0, profile_steps)
    longest = max(measure.max_steps, *(steps + _SETTLING for steps in others))
    return Length(batches=measure.warmup_steps + longest + 2 * (accumulate - 1))


_SETTLING = 6
"""As many steps as any phase takes, beyond the warm-up, before those that it counts."""


def leave_out_endings(module: pl.LightningModule) -> None:
    """Make `configure_callbacks` of `module` give all of its callbacks but `LEFT_OUT`, and say so."""
    if type(module).configure_callbacks is pl.LightningModule.configure_callbacks:
        return
    given = module.configure_callbacks

    def configure_callbacks() -> list[pl.Callback]:
        found = given()
        callbacks = [found] if isinstance(found, pl.Callback) else list(found)
        for callback in callbacks:
            if isinstance(callback, LEFT_OUT):
                sys.stderr.write(f"accelsweep: left out {type(callback).__name__} of {type(module).__name__}\n")
        return [callback for callback in callbacks if not isinstance(callback, LEFT_OUT)]

    module.configure_callbacks = configure_callbacks  # type: ignore[method-assign]
