"""Batches for raw loops: the data module's hooks in order, one loader, batches moved to the device."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from copy import copy
from dataclasses import fields, is_dataclass
from functools import partial
from pathlib import Path
from typing import Any

import lightning.pytorch as pl
import torch
from lightning.pytorch.core.hooks import DataHooks, ModelHooks
from lightning.pytorch.loggers.logger import DummyLogger
from lightning.pytorch.utilities.signature_utils import is_param_in_hook_signature
from torch import Tensor
from torch.utils.data import DataLoader, DistributedSampler, IterableDataset, RandomSampler

from accelsweep.devices.kinds import kind_of
from accelsweep.errors import InputError, MissingDevice, Unsupported
from accelsweep.heartbeat import Heartbeat
from accelsweep.metrics import Metric
from accelsweep.trainer_arguments import ineffective_arguments
from accelsweep.worker.loops.sample_count import no_batch
from accelsweep.worker.rank_setup import RankPlace
from accelsweep.worker.run_spec import RunSpec


def set_up(data: pl.LightningDataModule, module: pl.LightningModule, place: RankPlace, stage: str = "fit") -> None:
    """Let the data, and then the module, prepare once per host; then set both up on every rank."""
    if place.local_rank == 0:
        data.prepare_data()
        module.prepare_data()
    if place.size > 1:
        torch.distributed.barrier()
    data.setup(stage)
    module.setup(stage)
    module.configure_model()


def one_loader(loader: Any, place: RankPlace) -> DataLoader[Any]:
    """Return the training loader, with a sampler for this rank where its data set has rows. Raises Unsupported."""
    if not isinstance(loader, DataLoader):
        raise Unsupported(f"a raw loop needs one DataLoader; the data gives a {type(loader).__name__}")
    if place.size == 1 or isinstance(loader.dataset, IterableDataset):
        return loader
    sampler: DistributedSampler[Any] = DistributedSampler(
        loader.dataset, shuffle=isinstance(loader.sampler, RandomSampler)
    )
    return DataLoader(
        loader.dataset,
        batch_size=loader.batch_size,
        sampler=sampler,
        num_workers=loader.num_workers,
        collate_fn=loader.collate_fn,
        pin_memory=loader.pin_memory,
        drop_last=loader.drop_last,
    )


def endless(loader: DataLoader[Any], pass_ended: Callable[[int], object], heartbeat: Heartbeat) -> Iterator[Any]:
    """Yield the loader's batches again and again; `pass_ended` gets the number of batches so far each time it ends.

    `heartbeat` rests while the loader starts anew.
    """
    passes = steps = 0
    while True:
        if isinstance(loader.sampler, DistributedSampler):
            loader.sampler.set_epoch(passes)
        before = steps
        for batch in loader:
            steps += 1
            yield batch
        if steps == before:
            raise InputError(no_batch(loader))
        pass_ended(steps)
        heartbeat.pause()
        passes += 1


def mover(
    module: pl.LightningModule, data: pl.LightningDataModule, device: torch.device, dtype: torch.dtype | None
) -> Callable[[Any], Any]:
    """Return a function that brings a batch to the device, its floating tensors as `dtype` (None leaves them).

    The hooks `on_before_batch_transfer`, `transfer_batch_to_device` and `on_after_batch_transfer` are called where the
    data module or else the module overrides them. As in Lightning, their batch has been cast. The result of the last
    one is cast once more. A data module that turns bytes into numbers there has no Trainer to ask for their type.
    """
    before = overridden("on_before_batch_transfer", data, module)
    transfer = overridden("transfer_batch_to_device", data, module)
    after = overridden("on_after_batch_transfer", data, module)
    if before is None and transfer is None and after is None:
        return lambda batch: moved(batch, device, dtype)

    def move(batch: Any) -> Any:
        batch = moved(batch, None, dtype)
        batch = batch if before is None else before(batch, 0)
        batch = moved(batch, device, None) if transfer is None else transfer(batch, device, 0)
        return batch if after is None else moved(after(batch, 0), None, dtype)

    return move


def overridden(name: str, *owners: Any) -> Callable[..., Any] | None:
    """Return the hook of the first owner that overrides it, on its class or on itself; None if there is none."""
    for owner in owners:
        found = getattr(owner, name)
        if getattr(found, "__func__", found) is not getattr(DataHooks, name):
            return found  # type: ignore[no-any-return]
    return None


def moved(batch: Any, device: torch.device | None, dtype: torch.dtype | None) -> Any:
    """Return `batch` on `device`, its floating tensors as `dtype`; None leaves the device or the type.

    As in Lightning, whatever has a method `to` moves itself. What cannot be made anew by its type keeps its types.
    """
    if isinstance(batch, Tensor):
        there = batch if device is None else batch.to(device, non_blocking=True)
        return there.to(dtype) if dtype is not None and there.is_floating_point() else there
    if callable(getattr(batch, "to", None)):
        there = batch if device is None else batch.to(device)
        try:
            return there if dtype is None else _parts_moved(there, None, dtype)
        except (TypeError, ValueError):
            return there
    return _parts_moved(batch, device, dtype)


def _parts_moved(batch: Any, device: torch.device | None, dtype: torch.dtype | None) -> Any:
    """Return a container of the type of `batch` with its parts moved; what holds nothing is returned as it is."""
    if isinstance(batch, dict):
        return {key: moved(value, device, dtype) for key, value in batch.items()}
    if is_dataclass(batch) and not isinstance(batch, type):
        there = copy(batch)  # not made anew: a field may be no argument, and a check may read what is missing
        for field in fields(batch):
            object.__setattr__(there, field.name, moved(getattr(batch, field.name), device, dtype))
        return there
    if isinstance(batch, tuple) and hasattr(batch, "_fields"):
        return type(batch)(*(moved(value, device, dtype) for value in batch))
    if isinstance(batch, list | tuple):
        return type(batch)(moved(value, device, dtype) for value in batch)
    return batch


# The results of fp16's loss scaling: the final scale, and how many optimiser steps were skipped for overflows.

SCOPE = "rank 0, warm-up and window"

_NEVER_ASKED = "no step went through the Trainer's gradient scaler: under manual optimisation, step self.optimizers()"


class LossScale:
    """Watches a gradient scaler and the one optimiser that it steps; without a scaler there is nothing to watch."""

    def __init__(self, precision: str, scaler: Any = None, optimizer: torch.optim.Optimizer | None = None) -> None:
        """`scaler` is a torch GradScaler; None, or one that is not enabled, scales nothing.

        `optimizer` is None where there are several, whose steps cannot be told apart.
        """
        self._precision = precision
        self._scaler = scaler if scaler is not None and scaler.is_enabled() else None
        self._uncounted = None
        if optimizer is None:
            self._uncounted = "there are several optimisers, and a scaler may skip for each of them"
        elif getattr(optimizer, "_step_supports_amp_scaling", False):
            self._uncounted = "a fused optimiser skips inside of its kernel, where nobody counts: optimizer.fused=false"
        self._made = self._asked = self._skipped = 0
        if self._scaler is not None and optimizer is not None:
            optimizer.register_step_post_hook(self._count)
            self._ask, self._scaler.step = self._scaler.step, self._step

    def _count(self, *_: Any) -> None:
        self._made += 1

    def _step(self, *arguments: Any, **options: Any) -> Any:
        """Do the scaler's `step`, and look whether the optimiser made one."""
        made = self._made
        found = self._ask(*arguments, **options)
        self._asked += 1
        self._skipped += self._made == made
        return found

    def metrics(self) -> dict[str, Metric]:
        """Return `loss_scale` and `skipped_steps`. Waits for the device."""
        if self._scaler is None:
            reason = f"precision={self._precision} scales no loss; 16-mixed does"
            return {
                "loss_scale": Metric(value=None, unit="1", reason=reason),
                "skipped_steps": Metric(value=None, unit="steps", reason=reason),
            }
        uncounted = self._uncounted or (None if self._asked else _NEVER_ASKED)
        skipped = Metric(value=float(self._skipped), unit="steps", scope=SCOPE, provenance="counter")
        if uncounted is not None:
            skipped = Metric(value=None, unit="steps", reason=uncounted, scope=SCOPE)
        return {
            "loss_scale": Metric(value=float(self._scaler.get_scale()), unit="1", scope="rank 0, after the window"),
            "skipped_steps": skipped,
        }


# Device and precision without a Trainer: for the raw training loop, for inference and for kernels.

AUTOCAST = {"16-mixed": torch.float16, "bf16-mixed": torch.bfloat16}

CAST = {"32-true": torch.float32, "64-true": torch.float64, "bf16-true": torch.bfloat16, "16-true": torch.float16}


def device_of(accelerator: str, place: RankPlace) -> torch.device:
    """Return this rank's device. Raises MissingDevice where torch finds none of that kind."""
    refuse_absent(accelerator)
    return kind_of(accelerator).select_device(place.local_rank)


def refuse_absent(accelerator: str) -> None:
    """Raise MissingDevice where torch finds no device of this kind. It was planned, so somebody promised one."""
    if why := kind_of(accelerator).unavailable_reason():
        raise MissingDevice(f"accelerator={accelerator}: torch {torch.__version__} {why}")


def precision_of(spec: RunSpec, device: torch.device, what: str) -> str:
    """Return the config's precision. Raises Unsupported where `what` (`loop=raw`, ...) cannot have it."""
    precision = spec.config.precision
    if precision not in AUTOCAST and precision not in CAST:
        raise Unsupported(f"{what} has no precision={precision}; it has {', '.join([*CAST, *AUTOCAST])}")
    if precision == "16-mixed" and device.type == "cpu":
        raise Unsupported("precision=16-mixed is bf16-mixed on a CPU, which is another setting")
    return precision


def refuse_trainer_arguments(spec: RunSpec, what: str) -> None:
    """Raise Unsupported for an argument of Lightning's Trainer that would have no effect in `what`."""
    if refused := ineffective_arguments(spec.config.trainer, what):
        raise Unsupported(refused)


def autocast_of(precision: str, device: torch.device) -> Callable[[], AbstractContextManager[Any]]:
    """Return a function that gives a new autocast context for a mixed precision, and an idle context for the others."""
    dtype = AUTOCAST.get(precision)
    return nullcontext if dtype is None else partial(torch.autocast, device.type, dtype=dtype)


# Lightning's Trainer for a run: it has the usual answers for modules, and nothing but its listener ends it.


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


# The stand-in for the Trainer that a LightningModule finds in the raw loop. It has the ranks, and nothing else.

_ELSEWHERE = ("on_test_", "on_predict_", "on_validation_model_", "configure_model", "configure_sharded_model")
"""Hooks that belong to no training, or that the raw loop calls."""

_LOOPS_OWN = (
    "backward",
    "configure_callbacks",
    "configure_gradient_clipping",
    "lr_scheduler_step",
    "optimizer_step",
    "optimizer_zero_grad",
)
"""Methods of a module that replace the raw loop's own work."""

HOOKS = (*(name for name in vars(ModelHooks) if not name.startswith(("_", *_ELSEWHERE))), *_LOOPS_OWN)
"""Methods that a module may define and the raw loop does not call."""


class NoTrainer:
    """The `self.trainer` of the raw loop: the ranks, a logger that keeps nothing, and a refusal for everything else."""

    def __init__(self, owner: object, module: pl.LightningModule, place: RankPlace, spec: RunSpec, what: str) -> None:
        """`owner` is the module or the data that has it; `what` is `loop=raw`, or the task without a Trainer."""
        self._owner, self._what = type(owner).__name__, what
        self.lightning_module = module
        self.world_size, self.num_nodes, self.num_devices = place.size, spec.config.num_nodes, place.local_size
        self.global_rank, self.local_rank, self.node_rank = place.rank, place.local_rank, place.rank // place.local_size
        self.is_global_zero = place.rank == 0
        self.logger = ScratchLogger(spec.scratch())
        self.loggers = [self.logger]

    @property
    def log_dir(self) -> str:
        """The scratch folder of the run."""
        return self.logger.log_dir

    def __getattr__(self, name: str) -> Any:
        """Refuse. Names that Python itself looks for raise AttributeError."""
        if name.startswith("_"):
            raise AttributeError(name)
        remedy = ": use loop=lightning" if self._what == "loop=raw" else ""
        raise Unsupported(f"{self._what} has no Trainer, but {self._owner} reads self.trainer.{name}{remedy}")


def numbered(step: Callable[..., Any]) -> Callable[[Any, int], Any]:
    """Return a module's `step` as a function of the batch and its number, which the module need not take."""
    if is_param_in_hook_signature(step, "batch_idx", min_args=2):
        return step
    return lambda batch, _: step(batch)


def refuse_hooks(module: pl.LightningModule) -> None:
    """Raise Unsupported where `module` defines a hook that only Lightning's loop calls."""
    for name in HOOKS:
        if getattr(type(module), name) is not getattr(pl.LightningModule, name):
            raise Unsupported(f"loop=raw calls no {name}, which {type(module).__name__} defines: use loop=lightning")


def do_without_trainer(
    module: pl.LightningModule, data: pl.LightningDataModule, place: RankPlace, spec: RunSpec, what: str = "loop=raw"
) -> None:
    """Give both a `NoTrainer`."""
    module.trainer = NoTrainer(module, module, place, spec, what)  # type: ignore[assignment]
    data.trainer = NoTrainer(data, module, place, spec, what)  # type: ignore[assignment]
