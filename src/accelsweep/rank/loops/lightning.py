"""`loop: lightning`: the config's Trainer, with one callback of ours that shows each finished step to a listener."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from typing import Any

import lightning.pytorch as pl
from hydra.utils import instantiate
from lightning.fabric.plugins.environments.lightning import LightningEnvironment
from lightning.fabric.utilities.exceptions import MisconfigurationException
from torch.nn.parallel import DistributedDataParallel

from accelsweep.base.errors import InputError, Unsupported, nearest
from accelsweep.core.cells.trainer import DECIDED_HERE, DEFAULTS, LENGTH, decided_words
from accelsweep.measure.breakdown import PhaseTimer
from accelsweep.rank.loops.fully_sharded import with_fsdp
from accelsweep.rank.loops.loop import Examiner, Listener, learning_rate_of
from accelsweep.rank.loops.loss_scale import LossScale
from accelsweep.rank.loops.phases import PhaseProfiler
from accelsweep.rank.loops.raw_device import refuse_absent
from accelsweep.rank.loops.run_trainer import Length, RunTrainer, leave_out_endings, of_steps
from accelsweep.rank.loops.sample_count import usual
from accelsweep.rank.loops.side_by_side import SIDE_BY_SIDE, SideBySide, register
from accelsweep.rank.loops.step_callback import StepCallback
from accelsweep.rank.loops.trainer_device import settings_for
from accelsweep.rank.process import RankPlace, join_group, seed_all
from accelsweep.rank.spec import RunSpec
from accelsweep.state.pulse import Pulse
from accelsweep.workloads.building.build import build_module, converted, leaves_optimizer_to_us
from accelsweep.workloads.building.optimizer import scales
from accelsweep.workloads.loading.fake_loader import build_training_data


class LightningLoop:
    """A Trainer and the facts read back from it."""

    def __init__(self, spec: RunSpec, length: Length | None = None) -> None:
        """Build the Trainer. Raises Unsupported where Lightning or the machine refuses the combination.

        `length` is that of a phase which is not as long as the config's numbers of steps.
        """
        self._spec = spec
        self.name = "lightning"
        pulse = Pulse(spec.pulse(RankPlace.of(spec).rank))
        self._callback = StepCallback(spec.config.batch_size, pulse, spec.world_size, spec.run_seconds)
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
        self._trainer.fit(module, datamodule=self.data)
        self._callback.check_ending(self._trainer, module)
        self._refuse_another_batch(module)
        self.learning_rate = learning_rate_of(self._trainer.optimizers)
        self.optimizer = ", ".join(type(optimizer).__name__ for optimizer in self._trainer.optimizers) or "none"
        self._keep_logged()

    def _refuse_another_batch(self, module: pl.LightningModule) -> None:
        """Raise Unsupported where the learning rate followed a global batch that optimiser steps did not hold."""
        held = self.optimizer_steps.held()
        if not (held and scales(self._spec.config) and leaves_optimizer_to_us(module)):
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
    """RANK, WORLD_SIZE and the rest belong to the supervisor and outlive a Trainer: the next phase reads them again."""

    def teardown(self) -> None:
        """Leave the variables alone; Lightning's own removes WORLD_SIZE."""


def _build_trainer(
    spec: RunSpec, callback: pl.Callback, length: Length | None, pass_samples: Callable[[], int | None]
) -> RunTrainer:
    config, place = spec.config, RankPlace.of(spec)
    refuse_absent(config.accelerator)
    settings = _trainer_settings(config.trainer)
    accumulate = int(settings.get("accumulate_grad_batches") or 1)
    length = length or of_steps(config, accumulate, spec.profile_steps or 0)
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
        if name in DECIDED_HERE:
            raise InputError(decided_words(name))
        if name not in known:
            raise InputError(f"trainer.{name} is no argument of lightning's Trainer{nearest(name, known)}")
    strategy = trainer.get("strategy", DEFAULTS["strategy"])
    if isinstance(strategy, str) and any(word in strategy for word in ("spawn", "fork", "notebook")):
        raise Unsupported(
            f"trainer.strategy={strategy} starts processes of its own; use ddp, ranks are started already"
        )
    settings: dict[str, Any] = instantiate(converted(trainer))
    return {name: value for name, value in settings.items() if name not in (*LENGTH, "limit_val_batches")}


def _check(trainer: pl.Trainer, spec: RunSpec) -> None:
    if trainer.world_size != spec.world_size:
        raise RuntimeError(f"Lightning runs {trainer.world_size} ranks, but the plan has {spec.world_size}")
    asked = spec.config.precision
    if str(trainer.precision) != asked:
        device = trainer.strategy.root_device.type
        given = f"precision={asked} would become {trainer.precision} on {device}, which is another setting"
        raise Unsupported(f"{given}: set precision={trainer.precision}")
