"""Stands in for Lightning's Trainer in loops that do not use one: raw training, inference and kernels.

It handles the device and precision, the data module's hooks, moving batches to the device and reading loss scaling
results, and provides a stub for `self.trainer`.
"""

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
from accelsweep.worker.loops.sample_count import no_batch_message
from accelsweep.worker.rank_setup import RankPlace
from accelsweep.worker.run_spec import RunSpec

AUTOCAST = {"16-mixed": torch.float16, "bf16-mixed": torch.bfloat16}

CAST = {"32-true": torch.float32, "64-true": torch.float64, "bf16-true": torch.bfloat16, "16-true": torch.float16}


def rank_device(accelerator: str, place: RankPlace) -> torch.device:
    """Return this rank's device. Raises MissingDevice if torch does not detect a device of the required kind."""
    require_device(accelerator)
    return kind_of(accelerator).select_device(place.local_rank)


def require_device(accelerator: str) -> None:
    """Raise MissingDevice if torch detects no device of this kind although the plan expects one."""
    if reason := kind_of(accelerator).unavailable_reason():
        raise MissingDevice(f"accelerator={accelerator}: torch {torch.__version__} {reason}")


def checked_precision(spec: RunSpec, device: torch.device, what: str) -> str:
    """Return the config's precision. Raises Unsupported if `what` (`loop=raw`, ...) does not support it."""
    precision = spec.config.precision
    if precision not in AUTOCAST and precision not in CAST:
        raise Unsupported(f"{what} does not support precision={precision}; it supports {', '.join([*CAST, *AUTOCAST])}")
    if precision == "16-mixed" and device.type == "cpu":
        raise Unsupported("precision=16-mixed becomes bf16-mixed on a CPU, which is a different setting")
    return precision


def refuse_trainer_arguments(spec: RunSpec, what: str) -> None:
    """Raise Unsupported for a Trainer argument that has no effect in `what`."""
    if message := ineffective_arguments(spec.config.trainer, what):
        raise Unsupported(message)


def autocast_factory(precision: str, device: torch.device) -> Callable[[], AbstractContextManager[Any]]:
    """Return a context factory: autocast for mixed precision, `nullcontext` otherwise."""
    dtype = AUTOCAST.get(precision)
    return nullcontext if dtype is None else partial(torch.autocast, device.type, dtype=dtype)


def run_setup_hooks(
    data: pl.LightningDataModule, module: pl.LightningModule, place: RankPlace, stage: str = "fit"
) -> None:
    """Call the `prepare_data` hook once per host, and the `setup` and `configure_model` hooks on every rank."""
    if place.local_rank == 0:
        data.prepare_data()
        module.prepare_data()
    if place.size > 1:
        torch.distributed.barrier()
    data.setup(stage)
    module.setup(stage)
    module.configure_model()


def rank_loader(loader: Any, place: RankPlace) -> DataLoader[Any]:
    """Return `loader`, with a DistributedSampler if several ranks share its rows.

    Raises Unsupported if `loader` is not a DataLoader.
    """
    if not isinstance(loader, DataLoader):
        raise Unsupported(f"a raw loop needs a single DataLoader, not a {type(loader).__name__}")
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


def endless_batches(
    loader: DataLoader[Any], pass_ended: Callable[[int], object], heartbeat: Heartbeat
) -> Iterator[Any]:
    """Yield batches from `loader` endlessly; after each pass, call `pass_ended` with the number of batches so far.

    `heartbeat` is paused while the loader restarts.
    """
    passes = steps = 0
    while True:
        if isinstance(loader.sampler, DistributedSampler):
            loader.sampler.set_epoch(passes)
        steps_before = steps
        for batch in loader:
            steps += 1
            yield batch
        if steps == steps_before:
            raise InputError(no_batch_message(loader))
        pass_ended(steps)
        heartbeat.pause()
        passes += 1


def batch_mover(
    module: pl.LightningModule, data: pl.LightningDataModule, device: torch.device, dtype: torch.dtype | None
) -> Callable[[Any], Any]:
    """Return a function that moves a batch to the device and casts its floating-point tensors to `dtype`, if any.

    It calls the hooks `on_before_batch_transfer`, `transfer_batch_to_device` and `on_after_batch_transfer` of the data
    module, or else of the module. As in Lightning, the hooks receive a batch that has already been cast. The last
    hook's result is cast again, because a data module that converts bytes to floats there has no Trainer to read the
    dtype from.
    """
    before = overridden_hook("on_before_batch_transfer", data, module)
    transfer = overridden_hook("transfer_batch_to_device", data, module)
    after = overridden_hook("on_after_batch_transfer", data, module)
    if before is None and transfer is None and after is None:
        return lambda batch: move_batch(batch, device, dtype)

    def move(batch: Any) -> Any:
        batch = move_batch(batch, None, dtype)
        batch = batch if before is None else before(batch, 0)
        batch = move_batch(batch, device, None) if transfer is None else transfer(batch, device, 0)
        return batch if after is None else move_batch(after(batch, 0), None, dtype)

    return move


def overridden_hook(name: str, *owners: Any) -> Callable[..., Any] | None:
    """Return the hook from the first owner whose class or instance overrides it, or None if there is no such owner."""
    for owner in owners:
        hook = getattr(owner, name)
        if getattr(hook, "__func__", hook) is not getattr(DataHooks, name):
            return hook  # type: ignore[no-any-return]
    return None


def move_batch(batch: Any, device: torch.device | None, dtype: torch.dtype | None) -> Any:
    """Return `batch` on `device`, with floating-point tensors cast to `dtype`; either is left unchanged if it is None.

    As in Lightning, any object with a `to` method is moved by calling it. If such an object cannot be rebuilt as its
    own type, it is not cast.
    """
    if isinstance(batch, Tensor):
        moved = batch if device is None else batch.to(device, non_blocking=True)
        return moved.to(dtype) if dtype is not None and moved.is_floating_point() else moved
    if callable(getattr(batch, "to", None)):
        moved = batch if device is None else batch.to(device)
        try:
            return moved if dtype is None else _move_parts(moved, None, dtype)
        except (TypeError, ValueError):
            return moved
    return _move_parts(batch, device, dtype)


def _move_parts(batch: Any, device: torch.device | None, dtype: torch.dtype | None) -> Any:
    """Return a container of the same type as `batch` with its parts moved; anything else is returned unchanged."""
    if isinstance(batch, dict):
        return {key: move_batch(value, device, dtype) for key, value in batch.items()}
    if is_dataclass(batch) and not isinstance(batch, type):
        moved = copy(batch)  # its constructor may not accept all fields, or may validate their values
        for field in fields(batch):
            object.__setattr__(moved, field.name, move_batch(getattr(batch, field.name), device, dtype))
        return moved
    if isinstance(batch, tuple) and hasattr(batch, "_fields"):
        return type(batch)(*(move_batch(value, device, dtype) for value in batch))
    if isinstance(batch, list | tuple):
        return type(batch)(move_batch(value, device, dtype) for value in batch)
    return batch


_SCALE_SCOPE = "rank 0, warm-up and window"

_NEVER_USED = "no step used the Trainer's gradient scaler: under manual optimisation, step self.optimizers()"


class LossScale:
    """Reads the loss scale after training in fp16, and counts the optimiser steps skipped because of overflows."""

    def __init__(self, precision: str, scaler: Any = None, optimizer: torch.optim.Optimizer | None = None) -> None:
        """`scaler` is a torch GradScaler; if it is None or disabled, nothing is scaled.

        `optimizer` is the only optimiser, or None if there are several, in which case their steps cannot be counted.
        """
        self._precision = precision
        self._scaler = scaler if scaler is not None and scaler.is_enabled() else None
        self._uncounted = None
        if optimizer is None:
            self._uncounted = "there are several optimisers, and the scaler may skip steps of each one"
        elif getattr(optimizer, "_step_supports_amp_scaling", False):
            self._uncounted = (
                "a fused optimiser skips steps inside its kernel, where they are not counted: optimizer.fused=false"
            )
        self._made = self._attempted = self._skipped = 0
        if self._scaler is not None and optimizer is not None:
            optimizer.register_step_post_hook(self._count)
            self._scaler_step, self._scaler.step = self._scaler.step, self._step

    def _count(self, *_: Any) -> None:
        self._made += 1

    def _step(self, *arguments: Any, **options: Any) -> Any:
        made = self._made
        result = self._scaler_step(*arguments, **options)
        self._attempted += 1
        self._skipped += self._made == made
        return result

    def metrics(self) -> dict[str, Metric]:
        """Return `loss_scale` and `skipped_steps`. Waits for the device."""
        if self._scaler is None:
            reason = f"precision={self._precision} does not scale the loss; 16-mixed does"
            return {
                "loss_scale": Metric(value=None, unit="1", reason=reason),
                "skipped_steps": Metric(value=None, unit="steps", reason=reason),
            }
        uncounted = self._uncounted or (None if self._attempted else _NEVER_USED)
        skipped = Metric(value=float(self._skipped), unit="steps", scope=_SCALE_SCOPE, provenance="counter")
        if uncounted is not None:
            skipped = Metric(value=None, unit="steps", reason=uncounted, scope=_SCALE_SCOPE)
        return {
            "loss_scale": Metric(value=float(self._scaler.get_scale()), unit="1", scope="rank 0, after the window"),
            "skipped_steps": skipped,
        }


class ScratchLogger(DummyLogger):
    """A logger that discards everything, but provides a folder for files that hooks write alongside their logs."""

    def __init__(self, folder: Path) -> None:
        """`folder` is created on first use."""
        super().__init__()
        self._folder = folder

    @property
    def save_dir(self) -> str:
        """The folder."""
        self._folder.mkdir(parents=True, exist_ok=True)
        return str(self._folder)

    @property
    def log_dir(self) -> str:
        """The folder; TensorBoardLogger and CSVLogger define this property."""
        return self.save_dir

    @property
    def root_dir(self) -> str:
        """The folder."""
        return self.save_dir


_IRRELEVANT_HOOKS = (
    "on_test_",
    "on_predict_",
    "on_validation_model_",
    "configure_model",
    "configure_sharded_model",
)
"""Prefixes of hooks that are not part of training, or that the raw loop does call."""

_REPLACING_METHODS = (
    "backward",
    "configure_callbacks",
    "configure_gradient_clipping",
    "lr_scheduler_step",
    "optimizer_step",
    "optimizer_zero_grad",
)
"""Module methods that replace parts of Lightning's loop."""

UNCALLED_HOOKS = (
    *(name for name in vars(ModelHooks) if not name.startswith(("_", *_IRRELEVANT_HOOKS))),
    *_REPLACING_METHODS,
)
"""Methods that a module may define but the raw loop does not call."""


class TrainerStub:
    """Replaces `self.trainer` in loops without a Trainer.

    Provides the ranks and a logger that discards everything; accessing any other attribute raises an exception.
    """

    def __init__(self, owner: object, module: pl.LightningModule, place: RankPlace, spec: RunSpec, what: str) -> None:
        """`owner` is the module or data module that this stub is attached to; `what` is `loop=raw`, or the task."""
        self._owner, self._what = type(owner).__name__, what
        self.lightning_module = module
        self.world_size, self.num_nodes, self.num_devices = place.size, spec.config.num_nodes, place.local_size
        self.global_rank, self.local_rank, self.node_rank = place.rank, place.local_rank, place.rank // place.local_size
        self.is_global_zero = place.rank == 0
        self.logger = ScratchLogger(spec.scratch())
        self.loggers = [self.logger]

    @property
    def log_dir(self) -> str:
        """The run's scratch folder."""
        return self.logger.log_dir

    def __getattr__(self, name: str) -> Any:
        """Raise Unsupported, or AttributeError for names that Python itself looks up."""
        if name.startswith("_"):
            raise AttributeError(name)
        remedy = ": use loop=lightning" if self._what == "loop=raw" else ""
        raise Unsupported(f"{self._what} has no Trainer, but {self._owner} reads self.trainer.{name}{remedy}")


def attach_trainer_stub(
    module: pl.LightningModule, data: pl.LightningDataModule, place: RankPlace, spec: RunSpec, what: str = "loop=raw"
) -> None:
    """Attach a `TrainerStub` to the module and the data module."""
    module.trainer = TrainerStub(module, module, place, spec, what)  # type: ignore[assignment]
    data.trainer = TrainerStub(data, module, place, spec, what)  # type: ignore[assignment]


def with_batch_idx(step: Callable[..., Any]) -> Callable[[Any, int], Any]:
    """Wrap a module's `step` to take a batch and a batch index, even if the method itself does not take the index."""
    if is_param_in_hook_signature(step, "batch_idx", min_args=2):
        return step
    return lambda batch, _: step(batch)


def refuse_hooks(module: pl.LightningModule) -> None:
    """Raise Unsupported if `module` defines a hook that only Lightning's loop calls."""
    for name in UNCALLED_HOOKS:
        if getattr(type(module), name) is not getattr(pl.LightningModule, name):
            raise Unsupported(
                f"loop=raw does not call {name}, which {type(module).__name__} defines: use loop=lightning"
            )
