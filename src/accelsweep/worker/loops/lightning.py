"""`loop: lightning`: a Trainer with the config's arguments, and a callback that reports each step to a listener."""

from __future__ import annotations

import inspect
import math
import traceback
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import lightning.pytorch as pl
from lightning.fabric.plugins.environments.lightning import LightningEnvironment
from lightning.fabric.utilities.exceptions import MisconfigurationException
from lightning.pytorch.callbacks import GradientAccumulationScheduler
from lightning.pytorch.loops.fit_loop import _FitLoop

from accelsweep.errors import InputError, Unsupported, nearest
from accelsweep.heartbeat import Heartbeat
from accelsweep.run_config import SettingConfig
from accelsweep.trainer_arguments import (
    DEFAULTS,
    LENGTH_ARGUMENTS,
    RESERVED_ARGUMENTS,
    requested_length,
    reserved_message,
)
from accelsweep.worker.error_classification import is_interrupt
from accelsweep.worker.loops.execution import ModuleExecution
from accelsweep.worker.loops.loop import (
    StepListener,
    TrainingLength,
    ValidationListener,
    first_learning_rate,
)
from accelsweep.worker.loops.sample_count import (
    RARE_STEPS,
    usual_batches_per_step,
)
from accelsweep.worker.loops.strategies import (
    IndependentRanksStrategy,
    device_arguments,
    register_independent_ranks,
    replace_fsdp,
)
from accelsweep.worker.loops.trainer_loop import (
    STOPPING_CALLBACKS,
    StepCallback,
    TrainerLoop,
    optimizer_names,
    strip_callbacks,
)
from accelsweep.worker.loops.trainer_replacement import ScratchLogger, require_device
from accelsweep.worker.rank_setup import RankPlace, init_process_group, seed_all
from accelsweep.worker.run_spec import RunSpec
from accelsweep.workloads.instantiate import (
    build_module,
    build_training_data,
    scales_learning_rate,
    uses_config_optimizer,
)
from accelsweep.workloads.targets import instantiate

_HOOKS_WITH_DATA = ("configure_optimizers", "on_fit_start")
"""Hooks before training that may request the loader's length, in which case Lightning sets up the loader early."""


class RunTrainer(pl.Trainer):
    """A Trainer that runs until its listener stops it, and reports the planned length of training to modules.

    Modules and callbacks read `max_epochs`, `max_steps` and `estimated_stepping_batches`, for instance for learning
    rate schedules. The values are those set in the config, or higher if the phase needs more steps.
    """

    def __init__(
        self,
        config: SettingConfig,
        length: TrainingLength,
        pass_samples: Callable[[], int | None],
        scratch: Path,
        **settings: Any,
    ) -> None:
        """`pass_samples` returns the number of samples in one pass over the training data, or None if unknown.

        Samples are counted across all ranks.

        `settings` are the Trainer's arguments. Nothing is logged unless `log_every_n_steps` is among them.
        """
        self._config, self._length, self._pass_samples = config, length, pass_samples
        self._config_epochs, self._config_steps = requested_length(config.trainer)
        self._setting_up_data = False
        super().__init__(logger=ScratchLogger(scratch), **{"log_every_n_steps": 0, **settings})
        self.fit_loop = _UntilStopped(self)

    @property
    def max_epochs(self) -> int:
        """The number of training epochs.

        Before the training loader is known, this is the number in the config, or else the phase's number of batches.
        """
        return self._lengths()[0]

    @property
    def max_steps(self) -> int:
        """The number of optimiser steps in training."""
        return self._lengths()[1]

    @property
    def estimated_stepping_batches(self) -> int:
        """The same as `max_steps`."""
        return self._lengths()[1]

    def batches_per_step(self) -> int:
        """Return the number of batches that nearly all optimiser steps will use.

        Raises Unsupported if steps will differ.

        Under manual optimisation, one batch per step is assumed.
        """
        factors = {self.accumulate_grad_batches}
        for callback in self.callbacks:  # type: ignore[attr-defined]
            if isinstance(callback, GradientAccumulationScheduler):
                last = self.max_epochs
                factors = {factor for epoch, factor in callback.scheduling.items() if epoch < last}
        if len(factors) > 1:
            listed = ", ".join(map(str, sorted(factors)))
            raise self._no_global_batch(
                f"GradientAccumulationScheduler accumulates {listed} batches, depending on the epoch", "a fixed number"
            )
        (factor,) = factors
        batches = self._batches_of_an_epoch() if factor > 1 else None
        if batches is None or math.isinf(batches):
            return factor
        if batches < factor:
            return int(batches)
        rest = int(batches) % factor
        if rest and 1 / math.ceil(batches / factor) > RARE_STEPS:
            cause = f"an epoch of {batches:g} batches consists of optimiser steps of {factor} batches and one of {rest}"
            raise self._no_global_batch(cause, "a trainer.accumulate_grad_batches that divides this number")
        return factor

    def _no_global_batch(self, cause: str, remedy: str) -> Unsupported:
        scaling = self._config.learning_rate.lr_scaling
        return Unsupported(
            f"optimizer.lr_scaling={scaling} needs a fixed global batch size, but {cause}. Choose {remedy}, or "
            "optimizer.lr_scaling=none"
        )

    def _lengths(self) -> tuple[int, int]:
        """Return the numbers of training epochs and optimiser steps. Raises InputError if nothing bounds the phase."""
        batches, factor = self._batches_of_an_epoch(), self.accumulate_grad_batches
        if batches is None:
            most = self._planned(math.inf) or -1
            return self._config_epochs or most, self._config_steps or most
        planned = self._planned(batches)
        if planned is None and self._config_epochs is None and self._config_steps is None:
            raise InputError(
                "the module or a callback reads the length of training, which has no limit: set measure.max_samples or "
                "trainer.max_epochs"
            )
        endless = math.isinf(batches)
        per_pass = self._batches_of_a_pass() if endless else batches
        if per_pass is None:  # an endless stream of unknown length is treated as one epoch
            steps = math.ceil((planned or 0) / factor)
            return self._config_epochs or 1, max(steps, self._config_steps or 0)
        per_epoch = math.ceil(per_pass / factor)
        asked = self._config_epochs or (0 if self._config_steps is None else math.ceil(self._config_steps / per_epoch))
        epochs = max(asked, math.ceil((planned or 0) / per_pass), 1)
        if self._config_steps is None:
            return epochs, epochs * per_epoch
        passes, rest = divmod(planned or 0, per_pass)
        steps = int(passes) * per_epoch + math.ceil(rest / factor)
        return epochs, max(steps, min(self._config_steps, epochs * per_epoch))

    def _planned(self, batches: float) -> int | None:
        """Return the maximum number of batches in this phase, given `batches` per epoch; None if unbounded."""
        if self._length.samples is None:
            return self._length.batches
        spare = self.accumulate_grad_batches - 1  # batches that complete the last optimiser step
        per_batch = self._config.samples_per_step
        if math.isinf(batches):
            return -(-self._length.samples // per_batch) + spare
        passes, rest = divmod(self._length.samples, self._pass_samples() or int(batches) * per_batch)
        return passes * int(batches) + -(-rest // per_batch) + spare

    def _batches_of_a_pass(self) -> int | None:
        """Return the number of batches in one pass over the data behind an endless stream; None if unknown."""
        samples = self._pass_samples()
        return None if samples is None else max(1, samples // self._config.samples_per_step)

    def _batches_of_an_epoch(self) -> float | None:
        """Return the number of batches in an epoch, infinite for an endless stream; None until there is a loader.

        During the `_HOOKS_WITH_DATA`, every rank creates the loader in order to determine this number.
        """
        if self.fit_loop._combined_loader is None:
            if self._setting_up_data or self.lightning_module is None:
                return None
            if self.lightning_module._current_fx_name not in _HOOKS_WITH_DATA:
                return None
            self._setting_up_data = True
            try:
                self.fit_loop.setup_data()
            finally:
                self._setting_up_data = False
        return max(1, self.num_training_batches)


class _UntilStopped(_FitLoop):
    """Lightning's fit loop, except that it only ends when `should_stop` is set."""

    def __init__(self, trainer: pl.Trainer) -> None:
        super().__init__(trainer, max_epochs=-1)

    @property
    def done(self) -> bool:
        """Whether there are no batches, or `should_stop` is set."""
        return self.max_batches == 0 or (self.trainer.should_stop and self._can_stop_early)

    def _iteration_based_training(self) -> bool:
        return False


def fixed_length(config: SettingConfig, accumulate: int, extra_steps: int = 0) -> TrainingLength:
    """Return the length of the longest phase among those whose number of steps is set in the config."""
    measure = config.measure
    others = (2 * (measure.probe_steps or 0), measure.matmul_steps or 0, extra_steps)
    longest = max(measure.max_steps, *(steps + _MAX_SETTLING_STEPS for steps in others))
    return TrainingLength(batches=measure.warmup_steps + longest + 2 * (accumulate - 1))


_MAX_SETTLING_STEPS = 6
"""The maximum number of uncounted steps at the start of a phase, in addition to the warm-up."""


class LightningLoop(TrainerLoop):
    """A training loop that uses Lightning's Trainer; its attributes are read back from the Trainer."""

    _trainer: RunTrainer
    execution: ModuleExecution

    def __init__(self, spec: RunSpec, length: TrainingLength | None = None) -> None:
        """Build the Trainer. Raises Unsupported if Lightning or the machine rejects the combination.

        `length` bounds the phase; if it is None, the bound is derived from the step counts in the config.
        """
        self._spec = spec
        heartbeat = Heartbeat(spec.heartbeat(RankPlace.of(spec).rank))
        execution = ModuleExecution(spec.config)
        callback = StepCallback(
            spec.config.first_batch_size, heartbeat, spec.world_size, spec.run_seconds, execution=execution
        )
        super().__init__("lightning", _build_trainer(spec, callback, length, lambda: self.epoch_samples), callback)
        self.data: pl.LightningDataModule | None = None
        self.optimizer = "none"
        self.learning_rate: float | None = None
        self.teardown_error: BaseException | None = None
        limit = spec.config.trainer.get("limit_val_batches")
        self._limit_val_batches: int | float = 1.0 if limit is None else limit

    @property
    def epoch_samples(self) -> int | None:
        """The number of samples in one pass over the training data."""
        return self._epoch_samples(self.data)

    def disable_gradient_sync(self) -> bool:
        """Enter `no_sync` for the rest of this phase; return False if the strategy does not use DDP."""
        return isinstance(self._trainer.strategy, IndependentRanksStrategy) or super().disable_gradient_sync()

    def drive(self, listener: StepListener, validation: ValidationListener | None = None, data: Any = None) -> None:
        """Train a fresh module, using the run's seed, until one of the listeners ends the phase."""
        seed = self._spec.run.seed
        seed_all(seed)
        module = build_module(self._spec.config, self._spec.axes, self._trainer.batches_per_step)
        strip_callbacks(module, STOPPING_CALLBACKS, [])
        self.data = build_training_data(self._spec.config, seed, self.device, module, data)
        self._callback.listener, self._callback.validation = listener, validation
        if validation is not None:
            self._trainer.limit_val_batches = self._limit_val_batches
            self._trainer.val_check_interval = validation.every_steps
            self._trainer.check_val_every_n_epoch = None  # so that the interval counts steps across epochs
        try:
            with self.execution:
                self._trainer.fit(module, datamodule=self.data)
            self._keep_logged()
        except BaseException as error:
            if is_interrupt(error) or not self._callback.finished:
                raise
            self.teardown_error = error  # raised in `on_train_end`, `teardown` or similar: all results are available
            traceback.print_exception(error)
        self._callback.check_ending(self._trainer, module)
        self._check_scaled_learning_rate(module)
        self.learning_rate = first_learning_rate(self._trainer.optimizers)
        self.optimizer = optimizer_names(self._trainer)

    def _check_scaled_learning_rate(self, module: pl.LightningModule) -> None:
        """Raise Unsupported if the learning rate was scaled for a global batch that the optimiser steps do not use."""
        counts = self.optimizer_steps.batch_counts()
        if not (counts and scales_learning_rate(self._spec.config) and uses_config_optimizer(module)):
            return
        expected, actual = self._trainer.batches_per_step(), usual_batches_per_step(counts)
        if actual != expected:
            per_batch = self._spec.config.samples_per_step
            seen = "differing numbers of batches" if actual is None else f"{actual * per_batch}"
            raise Unsupported(
                f"optimizer.lr_scaling={self._spec.config.learning_rate.lr_scaling} scaled the learning rate for "
                f"{expected * per_batch} samples per optimiser step, but those of {type(module).__name__} used {seen}: "
                "set optimizer.lr_scaling=none and optimizer.lr, or accumulate with trainer.accumulate_grad_batches"
            )

    def validate(self) -> dict[str, float] | None:
        """Return the values that the trained module logs on the validation set; None if there is no validation set."""
        self._trainer.limit_val_batches = self._limit_val_batches
        module = self._trainer.lightning_module
        try:
            results = self._trainer.validate(module, datamodule=self.data, verbose=False)
        except MisconfigurationException as error:
            if "validation_step" in str(error) or "val_dataloader" in str(error):
                return None
            raise
        if not sum(self._trainer.num_val_batches):
            return None
        self._keep_logged()
        return {name: float(value) for logged in results for name, value in logged.items()}


class _ExecutorEnvironment(LightningEnvironment):
    """The environment of ranks started by the executor, which keeps RANK, WORLD_SIZE etc. for the next Trainer."""

    def teardown(self) -> None:
        """Keep WORLD_SIZE, which Lightning would remove, because the next phase reads it again."""


def _build_trainer(
    spec: RunSpec, callback: pl.Callback, length: TrainingLength | None, pass_samples: Callable[[], int | None]
) -> RunTrainer:
    config, place = spec.config, RankPlace.of(spec)
    require_device(config.accelerator)
    settings = _trainer_settings(config.trainer)
    if config.gradient_accumulation is not None:
        settings["accumulate_grad_batches"] = config.gradient_accumulation
    accumulate = int(settings.get("accumulate_grad_batches") or 1)
    length = length or fixed_length(config, accumulate, spec.extra_steps)
    register_independent_ranks()
    try:
        settings = replace_fsdp(device_arguments(config.accelerator, config.precision, place, settings))
        init_process_group(
            place, spec, config.accelerator, getattr(settings.get("strategy"), "process_group_backend", None)
        )
        callbacks = [*(settings.pop("callbacks", None) or ()), callback]
        plugins = [*(settings.pop("plugins", None) or ()), _ExecutorEnvironment()]
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
        raise Unsupported(f"Lightning rejected the configuration: {error}") from error
    if trainer.world_size != spec.world_size:
        raise RuntimeError(f"Lightning runs {trainer.world_size} ranks, but the plan has {spec.world_size}")
    if str(trainer.precision) != config.precision:
        change = f"precision={config.precision} would become {trainer.precision} on {trainer.strategy.root_device.type}"
        raise Unsupported(f"{change}, which is a different setting: set precision={trainer.precision}")
    return trainer


def _trainer_settings(trainer: Mapping[str, Any]) -> dict[str, Any]:
    """Instantiate the user's Trainer arguments. Raises InputError for arguments that accelsweep sets itself."""
    known = set(inspect.signature(pl.Trainer.__init__).parameters)
    for name in trainer:
        if name in RESERVED_ARGUMENTS:
            raise InputError(reserved_message(name))
        if name not in known:
            raise InputError(f"trainer.{name} is not an argument of Lightning's Trainer{nearest(name, known)}")
    strategy = trainer.get("strategy", DEFAULTS["strategy"])
    if isinstance(strategy, str) and any(word in strategy for word in ("spawn", "fork", "notebook")):
        raise Unsupported(
            f"trainer.strategy={strategy} starts its own processes, but the ranks are already running; use ddp"
        )
    settings: dict[str, Any] = instantiate(trainer)
    return {name: value for name, value in settings.items() if name not in (*LENGTH_ARGUMENTS, "limit_val_batches")}
