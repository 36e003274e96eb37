"""`loop: lightning`: a Trainer with the config's arguments, and a callback that reports each step to a listener."""

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
from accelsweep.worker.error_classification import is_interrupt
from accelsweep.worker.loops.loop import (
    NO_LOSS,
    NO_VALIDATION,
    StepListener,
    TrainingLength,
    ValidationListener,
    ValidationTimeout,
    extract_loss,
    first_learning_rate,
    to_meta,
)
from accelsweep.worker.loops.sample_count import (
    RARE_STEPS,
    OptimizerSteps,
    SampleCounter,
    may_be_endless,
    no_batch_message,
    usual_batches_per_step,
)
from accelsweep.worker.loops.strategies import (
    INDEPENDENT_RANKS,
    IndependentRanksStrategy,
    device_arguments,
    register_independent_ranks,
    replace_fsdp,
)
from accelsweep.worker.loops.trainer_replacement import LossScale, ScratchLogger, require_device
from accelsweep.worker.rank_setup import RankPlace, init_process_group, seed_all
from accelsweep.worker.run_spec import RunSpec
from accelsweep.workloads.data_module import ModuleData
from accelsweep.workloads.instantiate import (
    build_module,
    build_training_data,
    scales_learning_rate,
    uses_config_optimizer,
)
from accelsweep.workloads.targets import instantiate

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


STOPPING_CALLBACKS = (Checkpoint, EarlyStopping, Timer)
"""Module callbacks that a run omits, because it writes no checkpoints and ends with its window."""

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


def strip_stopping_callbacks(module: pl.LightningModule) -> None:
    """Make `module.configure_callbacks` omit `STOPPING_CALLBACKS`, and log each omission."""
    if type(module).configure_callbacks is pl.LightningModule.configure_callbacks:
        return
    original = module.configure_callbacks

    def configure_callbacks() -> list[pl.Callback]:
        configured = original()
        callbacks = [configured] if isinstance(configured, pl.Callback) else list(configured)
        for callback in callbacks:
            if isinstance(callback, STOPPING_CALLBACKS):
                sys.stderr.write(f"accelsweep: left out {type(callback).__name__} of {type(module).__name__}\n")
        return [callback for callback in callbacks if not isinstance(callback, STOPPING_CALLBACKS)]

    module.configure_callbacks = configure_callbacks  # type: ignore[method-assign]


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

    def __init__(self, batch_size: int, heartbeat: Heartbeat, ranks: int = 1, run_seconds: float | None = None) -> None:
        """`batch_size` is the number of samples in each rank's first batch; `run_seconds` is the run's time limit."""
        self._run_seconds = run_seconds
        self._validation_timeout: ValidationTimeout | None = None
        self._heartbeat = heartbeat
        self.listener: StepListener | None = None
        self.validation: ValidationListener | None = None
        self.loss_scale = LossScale("")
        self.epoch_ends: list[int] = []
        self.example: Any = None
        self.counter = SampleCounter(batch_size, ranks)
        self.optimizer_steps = OptimizerSteps()
        self._steps = 0
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
        assert self.listener is not None
        if self.validation is not None and not trainer.enable_validation:
            raise InputError(NO_VALIDATION)
        require_dtypes(module, str(trainer.precision))
        optimizer = trainer.optimizers[0] if len(trainer.optimizers) == 1 else None
        self.loss_scale = LossScale(trainer.precision, getattr(trainer.precision_plugin, "scaler", None), optimizer)
        for schedule in trainer.lr_scheduler_configs:
            schedule.strict = False  # the value it monitors may only be logged in validation, which may not run
        wrappers = [] if module.automatic_optimization else trainer.strategy._lightning_optimizers
        self.optimizer_steps.watch(trainer.optimizers, trainer.accumulate_grad_batches, wrappers)
        self._has_loss = self._ended = self._owes_validation = False
        self.listener.begin()

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
        samples = self.counter.count(batch, trainer.train_dataloader, module)
        if self._steps == 0:
            self.example = to_meta(batch)
        self._steps += 1
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


class LightningLoop:
    """A training loop that uses Lightning's Trainer; its attributes are read back from the Trainer."""

    def __init__(self, spec: RunSpec, length: TrainingLength | None = None) -> None:
        """Build the Trainer. Raises Unsupported if Lightning or the machine rejects the combination.

        `length` bounds the phase; if it is None, the bound is derived from the step counts in the config.
        """
        self._spec = spec
        self.name = "lightning"
        heartbeat = Heartbeat(spec.heartbeat(RankPlace.of(spec).rank))
        self._callback = StepCallback(spec.config.batch_size, heartbeat, spec.world_size, spec.run_seconds)
        self._trainer = _build_trainer(spec, self._callback, length, lambda: self.epoch_samples)
        self.data: pl.LightningDataModule | None = None
        self.device = self._trainer.strategy.root_device
        self.precision = str(self._trainer.precision)
        strategy = type(self._trainer.strategy).__name__
        self.strategy = _STRATEGY_NAMES.get(strategy, strategy)
        self.optimizer = "none"
        self.learning_rate: float | None = None
        self.accumulate = int(self._trainer.accumulate_grad_batches)
        self.logged: dict[str, float] = {}
        self.epoch_ends, self.optimizer_steps = self._callback.epoch_ends, self._callback.optimizer_steps
        self.teardown_error: BaseException | None = None
        self._without_exchange = ExitStack()
        limit = spec.config.trainer.get("limit_val_batches")
        self._limit_val_batches: int | float = 1.0 if limit is None else limit

    @property
    def module(self) -> pl.LightningModule:
        """The module that the Trainer trains."""
        return self._trainer.lightning_module

    @property
    def example(self) -> Any:
        """The first batch, as empty tensors on the meta device."""
        return self._callback.example

    @property
    def epoch_samples(self) -> int | None:
        """The number of samples in one pass over the training data."""
        trainer = self._trainer
        return self._callback.counter.epoch_samples(self.data, trainer.train_dataloader, trainer.num_training_batches)

    @property
    def loss_scale(self) -> LossScale:
        """The loss scale and skipped steps since training began."""
        return self._callback.loss_scale

    def time_phases(self, timer: PhaseTimer) -> None:
        """Report phases to `timer` through the Trainer's profiler, whose hooks enclose every phase."""
        self._trainer.profiler = PhaseProfiler(timer)  # type: ignore[attr-defined]

    def disable_gradient_sync(self) -> bool:
        """Enter `no_sync` for the remaining lifetime of this module; return False if the strategy does not use DDP."""
        if isinstance(self._trainer.strategy, IndependentRanksStrategy):
            return True
        model = self._trainer.strategy.model
        if not isinstance(model, DistributedDataParallel):
            return False
        self._without_exchange.enter_context(model.no_sync())
        return True

    def drive(self, listener: StepListener, validation: ValidationListener | None = None, data: Any = None) -> None:
        """Train a fresh module, using the run's seed, until one of the listeners ends the phase."""
        seed = self._spec.run.seed
        seed_all(seed)
        module = build_module(self._spec.config, self._spec.axes, self._trainer.batches_per_step)
        strip_stopping_callbacks(module)
        self.data = build_training_data(self._spec.config, seed, self.device, module, data)
        self._callback.listener, self._callback.validation = listener, validation
        if validation is not None:
            self._trainer.limit_val_batches = self._limit_val_batches
            self._trainer.val_check_interval = validation.every_steps
            self._trainer.check_val_every_n_epoch = None  # so that the interval counts steps across epochs
        try:
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
        self.optimizer = ", ".join(type(optimizer).__name__ for optimizer in self._trainer.optimizers) or "none"

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

    def _keep_logged(self) -> None:
        self.logged |= {name: float(value) for name, value in self._trainer.callback_metrics.items()}


_STRATEGY_NAMES = {
    "SingleDeviceStrategy": "single_device",
    "DDPStrategy": "ddp",
    "FSDPStrategy": "fsdp",
    "FullySharded": "fsdp",
    "DeepSpeedStrategy": "deepspeed",
    "IndependentRanksStrategy": INDEPENDENT_RANKS,
}


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
