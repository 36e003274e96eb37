"""`loop: lightning`: the config's Trainer, with one callback of ours that shows each finished step to a listener."""

from __future__ import annotations

import inspect
import math
import sys
import traceback
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import lightning.pytorch as pl
import torch
from lightning.fabric.plugins.environments.lightning import LightningEnvironment
from lightning.fabric.utilities.exceptions import MisconfigurationException
from lightning.pytorch.callbacks import Checkpoint, EarlyStopping, GradientAccumulationScheduler, Timer
from lightning.pytorch.loops.fit_loop import _FitLoop
from lightning.pytorch.profilers import Profiler
from torch.nn.parallel import DistributedDataParallel

from accelsweep.errors import InputError, Unsupported, nearest
from accelsweep.heartbeat import Heartbeat
from accelsweep.measure.breakdown import PhaseTimer
from accelsweep.run_config import SettingConfig
from accelsweep.trainer_arguments import (
    DEFAULTS,
    LENGTH_ARGUMENTS,
    RESERVED_ARGUMENTS,
    requested_length,
    reserved_message,
)
from accelsweep.worker.errors import interrupted
from accelsweep.worker.loops.loop import (
    NO_LOSS,
    NO_VALIDATION,
    Examiner,
    Length,
    Listener,
    ValidationTime,
    learning_rate_of,
    loss_in,
    on_meta,
)
from accelsweep.worker.loops.raw_parts import LossScale, ScratchLogger, refuse_absent
from accelsweep.worker.loops.sample_count import (
    RARE_STEPS,
    OptimizerSteps,
    SampleCount,
    may_be_endless,
    no_batch,
    usual,
)
from accelsweep.worker.loops.strategies import SIDE_BY_SIDE, SideBySide, register, settings_for, with_fsdp
from accelsweep.worker.rank_setup import RankPlace, join_group, seed_all
from accelsweep.worker.run_spec import RunSpec
from accelsweep.workloads.data_module import ModuleData
from accelsweep.workloads.instantiate import (
    build_module,
    build_training_data,
    scales_learning_rate,
    uses_config_optimizer,
)
from accelsweep.workloads.targets import instantiate

# Lightning's own names of its actions, as the phases of a step: a profiler that reports to a `PhaseTimer`.

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
"""Hooks that several owners have; the outermost call counts."""


class PhaseProfiler(Profiler):
    """Turns Lightning's actions into phases."""

    def __init__(self, timer: PhaseTimer) -> None:
        """`timer` gets every phase."""
        super().__init__()
        self._timer = timer
        self._depths: list[int] = []

    def start(self, action_name: str) -> None:
        """Enter the action's phase, if it is one."""
        phase = _phase_of(action_name)
        if phase is not None:
            self._depths.append(self._timer.depth)
            self._timer.enter(phase)

    def stop(self, action_name: str) -> None:
        """Leave the phase and all phases inside it."""
        if _phase_of(action_name) is not None:
            depth = self._depths.pop()
            self._timer.leave_to(depth)
        elif action_name.startswith("[LightningModule]") and action_name.endswith(".on_before_optimizer_step"):
            self._timer.enter("optimizer")


def _phase_of(action_name: str) -> str | None:
    hook = action_name.rpartition(".")[2]
    return _PHASES.get(hook) if action_name.startswith(_OWNERS.get(hook, "[")) else None


# Lightning's Trainer for a run: it has the usual answers for modules, and nothing but its listener ends it.

LEFT_OUT = (Checkpoint, EarlyStopping, Timer)
"""Callbacks of a module's own that a run leaves out: it keeps no checkpoints and ends with its window."""

_WITH_DATA = ("configure_optimizers", "on_fit_start")
"""Hooks before training that may look at the training loader, as Lightning itself does there."""


class RunTrainer(pl.Trainer):
    """A Trainer without an end of its own, for a phase of this `length`.

    `pass_samples` returns the samples of a pass over the training data on all ranks, or None where nothing tells.
    """

    def __init__(
        self,
        config: SettingConfig,
        length: Length,
        pass_samples: Callable[[], int | None],
        scratch: Path,
        **settings: Any,
    ) -> None:
        """`settings` are the Trainer's. Nothing is sent to the logger unless they say how often."""
        self._config, self._length, self._pass_samples = config, length, pass_samples
        self._asked_epochs, self._asked_steps = requested_length(config.trainer)
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
            listed = ", ".join(map(str, sorted(factors)))
            raise self._no_one_batch(
                f"GradientAccumulationScheduler accumulates {listed} batches, by epoch", "one number"
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
    """Lightning's loop, which ends when `should_stop` is set, not after a number of epochs or optimiser steps."""

    def __init__(self, trainer: pl.Trainer) -> None:
        super().__init__(trainer, max_epochs=-1)

    @property
    def done(self) -> bool:
        """Whether there is nothing to train on, or `should_stop` is set."""
        return self.max_batches == 0 or (self.trainer.should_stop and self._can_stop_early)

    def _iteration_based_training(self) -> bool:
        return False


def of_steps(config: SettingConfig, accumulate: int, further_steps: int = 0) -> Length:
    """Return the length of the phases that are as long as the config's numbers of steps: the longest of them."""
    measure = config.measure
    others = (2 * (measure.probe_steps or 0), measure.matmul_steps or 0, further_steps)
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


# Whether a module's parameters have the number format that the record will state.

_ALLOWED = {
    "64-true": (torch.float64,),
    "32-true": (torch.float32,),
    "bf16-true": (torch.bfloat16,),
    "16-true": (torch.float16,),
    "bf16-mixed": (torch.float32, torch.bfloat16),
    "16-mixed": (torch.float32, torch.float16),
}
"""Precision -> the formats of its trained parameters; a strategy may keep the mixed ones' wide copy elsewhere."""


def refuse_other_formats(module: pl.LightningModule, precision: str) -> None:
    """Raise Unsupported where `module` trains a parameter in a format that is not one of `precision`."""
    allowed = _ALLOWED.get(precision)
    trained = [each for each in module.parameters() if each.requires_grad and each.is_floating_point()]
    other = next((each.dtype for each in trained if allowed is not None and each.dtype not in allowed), None)
    if other is not None:
        raise Unsupported(
            f"precision={precision}, but {type(module).__name__} trains parameters of {other}, which is another "
            f"setting: remove torch.set_default_dtype or the cast from its code{_instead(other)}"
        )


def _instead(found: torch.dtype) -> str:
    named = next((name for name, formats in _ALLOWED.items() if formats == (found,)), None)
    return f", or set precision={named}" if named else ""


# Our one callback for Lightning's Trainer: it shows steps to a listener and validations to an examiner.


class StepCallback(pl.Callback):
    """Shows steps to the listener: `begin` before the first batch, `step_done` after each, stop when it has enough.

    An examiner, if there is one, gets the logged values of each validation.
    """

    def __init__(self, batch_size: int, heartbeat: Heartbeat, ranks: int = 1, run_seconds: float | None = None) -> None:
        """`batch_size` is the size that the first batch of each rank must have; `heartbeat` counts its steps.

        `run_seconds` is the time limit of the run.
        """
        self._run_seconds = run_seconds
        self._validation: ValidationTime | None = None
        self._heartbeat = heartbeat
        self.listener: Listener | None = None
        self.examiner: Examiner | None = None
        self.loss_scale = LossScale("")
        self.epoch_ends: list[int] = []
        self.example: Any = None
        self.count = SampleCount(batch_size, ranks)
        self.optimizer_steps = OptimizerSteps()
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
        wrappers = [] if module.automatic_optimization else trainer.strategy._lightning_optimizers
        self.optimizer_steps.watch(trainer.optimizers, trainer.accumulate_grad_batches, wrappers)
        self._has_loss = self._ended = self._owes_validation = False
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
        self._heartbeat.step(pauses=enough or trainer.is_last_batch)  # after the last batch the loader starts anew
        if enough:
            trainer.should_stop = self._ended = True
            self._owes_validation = self.examiner is not None

    def on_validation_start(self, *_: Any) -> None:
        """Rest: validation has no steps."""
        self._heartbeat.pause()
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
            self._owes_validation = False
            logged = {name: float(value) for name, value in trainer.callback_metrics.items()}
            if self.examiner.examined(logged):
                trainer.should_stop = self._ended = True

    def on_train_epoch_end(self, trainer: pl.Trainer, *_: Any) -> None:
        """Note the end of a pass over the training data, which may be where the listener had enough."""
        self.epoch_ends.append(self._steps)
        self.count.pass_ended(complete=not self._ended or trainer.is_last_batch)


class LightningLoop:
    """A Trainer and the facts read back from it."""

    def __init__(self, spec: RunSpec, length: Length | None = None) -> None:
        """Build the Trainer. Raises Unsupported where Lightning or the machine refuses the combination.

        `length` is that of a phase which is not as long as the config's numbers of steps.
        """
        self._spec = spec
        self.name = "lightning"
        heartbeat = Heartbeat(spec.heartbeat(RankPlace.of(spec).rank))
        self._callback = StepCallback(spec.config.batch_size, heartbeat, spec.world_size, spec.run_seconds)
        self._trainer = _build_trainer(spec, self._callback, length, lambda: self.epoch_samples)
        self.data: pl.LightningDataModule | None = None
        self.device = self._trainer.strategy.root_device
        self.precision = str(self._trainer.precision)
        self.strategy = _strategy_name(self._trainer)
        self.optimizer = "none"
        self.learning_rate: float | None = None
        self.accumulate = int(self._trainer.accumulate_grad_batches)
        self.logged: dict[str, float] = {}
        self.epoch_ends, self.optimizer_steps = self._callback.epoch_ends, self._callback.optimizer_steps
        self.late_error: BaseException | None = None
        self._without_exchange = ExitStack()
        limit = spec.config.trainer.get("limit_val_batches")
        self._limit_val_batches: int | float = 1.0 if limit is None else limit

    @property
    def module(self) -> pl.LightningModule:
        """The module that the Trainer trains."""
        return self._trainer.lightning_module

    @property
    def example(self) -> Any:
        """The first batch, emptied."""
        return self._callback.example

    @property
    def epoch_samples(self) -> int | None:
        """The samples of one pass over the training data."""
        trainer = self._trainer
        return self._callback.count.of_a_pass(self.data, trainer.train_dataloader, trainer.num_training_batches)

    @property
    def loss_scale(self) -> LossScale:
        """The results of loss scaling since training began."""
        return self._callback.loss_scale

    def watch(self, timer: PhaseTimer) -> None:
        """Take the place of the Trainer's profiler, whose hooks stand around every phase."""
        self._trainer.profiler = PhaseProfiler(timer)  # type: ignore[attr-defined]

    def stop_exchange(self) -> bool:
        """Enter `no_sync` for the rest of this module's life, where the strategy wraps it in DDP."""
        if isinstance(self._trainer.strategy, SideBySide):
            return True  # it never exchanges anything
        model = self._trainer.strategy.model
        if not isinstance(model, DistributedDataParallel):
            return False
        self._without_exchange.enter_context(model.no_sync())
        return True

    def drive(self, listener: Listener, examiner: Examiner | None = None, data: Any = None) -> None:
        """Train a fresh module, seeded by the run, until `listener` or `examiner` has enough."""
        seed = self._spec.run.seed
        seed_all(seed)
        module = build_module(self._spec.config, self._spec.axes, self._trainer.batches_per_step)
        leave_out_endings(module)
        self.data = build_training_data(self._spec.config, seed, self.device, module, data)
        self._callback.listener, self._callback.examiner = listener, examiner
        if examiner is not None:
            self._trainer.limit_val_batches = self._limit_val_batches
            self._trainer.val_check_interval = examiner.every_steps
            self._trainer.check_val_every_n_epoch = None  # so that the interval counts steps across epochs
        try:
            self._trainer.fit(module, datamodule=self.data)
            self._keep_logged()
        except BaseException as error:
            if interrupted(error) or not self._callback.finished:
                raise
            self.late_error = error  # of `on_train_end`, `teardown` and their like, which no number needs
            traceback.print_exception(error)
        self._callback.check_ending(self._trainer, module)
        self._refuse_another_batch(module)
        self.learning_rate = learning_rate_of(self._trainer.optimizers)
        self.optimizer = ", ".join(type(optimizer).__name__ for optimizer in self._trainer.optimizers) or "none"

    def _refuse_another_batch(self, module: pl.LightningModule) -> None:
        """Raise Unsupported where the learning rate followed a global batch that optimiser steps did not hold."""
        held = self.optimizer_steps.held()
        if not (held and scales_learning_rate(self._spec.config) and uses_config_optimizer(module)):
            return
        followed, found = self._trainer.batches_per_step(), usual(held)
        if found != followed:
            together = self._spec.config.samples_per_step
            seen = "differing numbers of batches" if found is None else f"{found * together}"
            raise Unsupported(
                f"optimizer.lr_scaling={self._spec.config.learning_rate.lr_scaling} made the learning rate for "
                f"{followed * together} samples an optimiser step, but those of {type(module).__name__} held {seen}: "
                "set optimizer.lr_scaling=none and the rate itself, or accumulate with trainer.accumulate_grad_batches"
            )

    def validate(self) -> dict[str, float] | None:
        """Return the values that the trained module logs over the validation set; None where the data has none."""
        self._trainer.limit_val_batches = self._limit_val_batches
        module = self._trainer.lightning_module
        try:
            found = self._trainer.validate(module, datamodule=self.data, verbose=False)
        except MisconfigurationException as error:
            if "validation_step" in str(error) or "val_dataloader" in str(error):
                return None
            raise
        if not sum(self._trainer.num_val_batches):
            return None
        self._keep_logged()
        return {name: float(value) for results in found for name, value in results.items()}

    def _keep_logged(self) -> None:
        self.logged |= {name: float(value) for name, value in self._trainer.callback_metrics.items()}


def _strategy_name(trainer: pl.Trainer) -> str:
    """Return the registered name of the Trainer's strategy class (`ddp`, `single_device`), or the class's own name."""
    return _NAMES.get(type(trainer.strategy).__name__, type(trainer.strategy).__name__)


_NAMES = {
    "SingleDeviceStrategy": "single_device",
    "DDPStrategy": "ddp",
    "FSDPStrategy": "fsdp",
    "FullySharded": "fsdp",
    "DeepSpeedStrategy": "deepspeed",
    "SideBySide": SIDE_BY_SIDE,
}


class _RanksStartedAlready(LightningEnvironment):
    """RANK, WORLD_SIZE and the rest are the executor's and outlive a Trainer: the next phase reads them again."""

    def teardown(self) -> None:
        """Leave the variables alone; Lightning's own removes WORLD_SIZE."""


def _build_trainer(
    spec: RunSpec, callback: pl.Callback, length: Length | None, pass_samples: Callable[[], int | None]
) -> RunTrainer:
    config, place = spec.config, RankPlace.of(spec)
    refuse_absent(config.accelerator)
    settings = _trainer_settings(config.trainer)
    accumulate = int(settings.get("accumulate_grad_batches") or 1)
    length = length or of_steps(config, accumulate, spec.steps)
    register()
    try:
        settings = with_fsdp(settings_for(config.accelerator, config.precision, place, settings))
        join_group(place, spec, config.accelerator, getattr(settings.get("strategy"), "process_group_backend", None))
        callbacks = [*(settings.pop("callbacks", None) or ()), callback]
        plugins = [*(settings.pop("plugins", None) or ()), _RanksStartedAlready()]
        trainer = RunTrainer(
            config,
            length,
            pass_samples,
            spec.scratch(),
            devices=place.local_size,
            num_nodes=config.num_nodes,
            limit_val_batches=0,
            num_sanity_val_steps=0,
            enable_checkpointing=False,
            enable_progress_bar=False,
            enable_model_summary=False,
            callbacks=callbacks,
            plugins=plugins,
            **settings,
        )
    except (MisconfigurationException, ValueError, ImportError) as error:
        raise Unsupported(f"Lightning refuses this here: {error}") from error
    _check(trainer, spec)
    return trainer


def _trainer_settings(trainer: Mapping[str, Any]) -> dict[str, Any]:
    """Return the user's Trainer arguments, instantiated. Raises InputError for one that is decided elsewhere."""
    known = set(inspect.signature(pl.Trainer.__init__).parameters)
    for name in trainer:
        if name in RESERVED_ARGUMENTS:
            raise InputError(reserved_message(name))
        if name not in known:
            raise InputError(f"trainer.{name} is no argument of lightning's Trainer{nearest(name, known)}")
    strategy = trainer.get("strategy", DEFAULTS["strategy"])
    if isinstance(strategy, str) and any(word in strategy for word in ("spawn", "fork", "notebook")):
        raise Unsupported(
            f"trainer.strategy={strategy} starts processes of its own; use ddp, ranks are started already"
        )
    settings: dict[str, Any] = instantiate(trainer)
    return {name: value for name, value in settings.items() if name not in (*LENGTH_ARGUMENTS, "limit_val_batches")}


def _check(trainer: pl.Trainer, spec: RunSpec) -> None:
    if trainer.world_size != spec.world_size:
        raise RuntimeError(f"Lightning runs {trainer.world_size} ranks, but the plan has {spec.world_size}")
    asked = spec.config.precision
    if str(trainer.precision) != asked:
        device = trainer.strategy.root_device.type
        given = f"precision={asked} would become {trainer.precision} on {device}, which is another setting"
        raise Unsupported(f"{given}: set precision={trainer.precision}")
