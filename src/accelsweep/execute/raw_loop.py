"""`loop: raw`: the same module and data in a bare PyTorch loop, as one would write it by hand.

The difference between the two loops is what Lightning costs per step. Only what a hand-written loop has is here: one
optimiser, autocast or a cast module, a gradient scaler, DistributedDataParallel.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import lightning.pytorch as pl
import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, IterableDataset, RandomSampler

from accelsweep.core.errors import InputError
from accelsweep.execute.errors import Unsupported
from accelsweep.execute.loops import Listener, count_samples, loss_in
from accelsweep.execute.process import Place, join_group, seed_all
from accelsweep.execute.raw_log import RawLog
from accelsweep.execute.spec import RunSpec
from accelsweep.workloads.build import build_data, build_module

AUTOCAST = {"16-mixed": torch.float16, "bf16-mixed": torch.bfloat16}
CAST = {"32-true": torch.float32, "64-true": torch.float64, "bf16-true": torch.bfloat16, "16-true": torch.float16}


class RawLoop:
    """A hand-written loop and what it uses."""

    def __init__(self, spec: RunSpec) -> None:
        """Choose device and precision. Raises Unsupported for what only Lightning's loop can do."""
        self._spec, self._place = spec, Place.of(spec)
        self.device = _device(str(spec.config["accelerator"]), self._place)
        self.precision = _precision(spec, self.device)
        join_group(self._place, self.device.type, int(spec.config["num_nodes"]))
        self.strategy = "ddp" if spec.world_size > 1 else "single_device"
        self.optimizer, self.accumulate = "none", 1
        self.epoch_ends: list[int] = []
        self._log = RawLog(self.device)

    @property
    def logged(self) -> dict[str, float]:
        """What the module logged, each name's mean since the last phase began."""
        return self._log.means(self.strategy == "ddp")

    def train(self, listener: Listener) -> None:
        """Train a fresh module, seeded by the run, until `listener` has enough."""
        seed_all(self._spec.run.seed)
        self._module = build_module(self._spec.config)
        self._log.listen_to(self._module)
        self._data = build_data(self._spec.config, self._spec.run.seed)
        _set_up(self._data, self._place)
        self._module.to(self.device, CAST.get(self.precision, torch.float32)).train()
        optimizer = _one_optimizer(self._module)
        self.optimizer = type(optimizer).__name__
        batches = self._batches(_one_loader(self._data, self._place))
        listener.begin()
        self._steps(_Step(self._module), optimizer, batches, listener)

    def validate(self) -> dict[str, float] | None:
        """Return what the trained module logs over the validation set; None where the data has none."""
        if type(self._data).val_dataloader is pl.LightningDataModule.val_dataloader:
            return None
        self._log.clear()
        self._module.eval()
        with torch.no_grad(), self._autocast()():
            for number, batch in enumerate(self._data.val_dataloader()):
                self._module.validation_step(_moved(batch, self.device, CAST.get(self.precision)), number)
        return self.logged

    def _steps(
        self, step: nn.Module, optimizer: torch.optim.Optimizer, batches: Iterator[Any], listener: Listener
    ) -> None:
        if self._place.size > 1:
            step = DistributedDataParallel(step, device_ids=[self.device.index] if self.device.type == "cuda" else None)
        autocast, cast, batch_size = self._autocast(), CAST.get(self.precision), int(self._spec.config["batch_size"])
        scaler = torch.amp.GradScaler(self.device.type, enabled=self.precision == "16-mixed")
        for number, batch in enumerate(batches):
            moved = _moved(batch, self.device, cast)
            optimizer.zero_grad()
            with autocast():
                loss = loss_in(step(moved, number))
            scaler.scale(loss).backward()
            scaler.step(optimizer)
            scaler.update()
            if listener.step_done(count_samples(batch, number == 0, batch_size), loss.detach()):
                return

    def _autocast(self) -> Callable[[], AbstractContextManager[Any]]:
        dtype = AUTOCAST.get(self.precision)
        return (lambda: torch.autocast(self.device.type, dtype=dtype)) if dtype is not None else nullcontext

    def _batches(self, loader: DataLoader[Any]) -> Iterator[Any]:
        passes = steps = 0
        while True:
            if isinstance(loader.sampler, DistributedSampler):
                loader.sampler.set_epoch(passes)
            before = steps
            for batch in loader:
                steps += 1
                yield batch
            if steps == before:
                raise InputError("the training loader is empty: lower batch_size, or keep short batches")
            self.epoch_ends.append(steps)
            passes += 1


class _Step(nn.Module):
    """The module's training step as a forward, which is what DistributedDataParallel can wrap."""

    def __init__(self, module: pl.LightningModule) -> None:
        super().__init__()
        self.module = module

    def forward(self, batch: Any, number: int) -> Any:
        return self.module.training_step(batch, number)


def _device(accelerator: str, place: Place) -> torch.device:
    if accelerator == "auto":
        accelerator = "cuda" if torch.cuda.is_available() else "mps" if torch.backends.mps.is_available() else "cpu"
    if accelerator == "cuda":
        if not torch.cuda.is_available():
            raise Unsupported("accelerator=cuda: torch finds no CUDA device here")
        torch.cuda.set_device(place.local_rank)
        return torch.device("cuda", place.local_rank)
    if accelerator == "mps" and not torch.backends.mps.is_available():
        raise Unsupported("accelerator=mps: torch finds no Apple GPU here")
    return torch.device(accelerator)


def _precision(spec: RunSpec, device: torch.device) -> str:
    precision = str(spec.config["precision"])
    if precision not in AUTOCAST and precision not in CAST:
        raise Unsupported(f"loop=raw has no precision={precision}; it has {', '.join([*CAST, *AUTOCAST])}")
    if precision == "16-mixed" and device.type == "cpu":
        raise Unsupported("precision=16-mixed is bf16-mixed on a CPU, which is another cell")
    refused = {name for name, value in (spec.config.get("trainer") or {}).items() if value and name not in _HARMLESS}
    if refused or int((spec.config.get("trainer") or {}).get("accumulate_grad_batches") or 1) > 1:
        names = ", ".join(sorted(refused)) or "accumulate_grad_batches"
        raise Unsupported(f"loop=raw knows no trainer.{names}: use loop=lightning, or leave it out")
    return precision


_HARMLESS = {"strategy", "accumulate_grad_batches", "use_distributed_sampler", "log_every_n_steps"}
"""Trainer arguments that a bare loop may ignore, or that are checked apart."""


def _set_up(data: pl.LightningDataModule, place: Place) -> None:
    if place.local_rank == 0:
        data.prepare_data()
    if place.size > 1:
        torch.distributed.barrier()
    data.setup("fit")


def _one_optimizer(module: pl.LightningModule) -> torch.optim.Optimizer:
    found: Any = module.configure_optimizers()
    if isinstance(found, list | tuple) and len(found) == 1:
        found = found[0]
    if isinstance(found, torch.optim.Optimizer) and module.automatic_optimization:
        return found
    raise Unsupported(
        "loop=raw drives one optimiser without a schedule; this module's configure_optimizers gives something else: "
        "use loop=lightning"
    )


def _one_loader(data: pl.LightningDataModule, place: Place) -> DataLoader[Any]:
    loader = data.train_dataloader()
    if not isinstance(loader, DataLoader):
        raise Unsupported(f"loop=raw needs one DataLoader; train_dataloader gives a {type(loader).__name__}")
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


def _moved(batch: Any, device: torch.device, dtype: torch.dtype | None) -> Any:
    if isinstance(batch, Tensor):
        moved = batch.to(device, non_blocking=True)
        return moved.to(dtype) if dtype is not None and moved.is_floating_point() else moved
    if isinstance(batch, dict):
        return {key: _moved(value, device, dtype) for key, value in batch.items()}
    if isinstance(batch, list | tuple):
        return type(batch)(_moved(value, device, dtype) for value in batch)
    return batch
