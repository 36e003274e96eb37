"""Batches for raw loops: the data module's hooks in order, one loader, batches moved to the device."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import fields, is_dataclass, replace
from typing import Any

import lightning.pytorch as pl
import torch
from lightning.pytorch.core.hooks import DataHooks
from torch import Tensor
from torch.utils.data import DataLoader, DistributedSampler, IterableDataset, RandomSampler

from accelsweep.base.errors import InputError, Unsupported
from accelsweep.rank.loops.sample_count import no_batch
from accelsweep.rank.process import RankPlace
from accelsweep.state.pulse import Pulse


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


def endless(loader: DataLoader[Any], pass_ended: Callable[[int], object], pulse: Pulse) -> Iterator[Any]:
    """Yield the loader's batches again and again; `pass_ended` gets the number of batches so far each time it ends.

    `pulse` rests while the loader starts anew.
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
        pulse.rest()
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
    """Return `batch` on `device`, its floating tensors as `dtype`; None leaves the device or the type."""
    if isinstance(batch, Tensor):
        there = batch if device is None else batch.to(device, non_blocking=True)
        return there.to(dtype) if dtype is not None and there.is_floating_point() else there
    if isinstance(batch, dict):
        return {key: moved(value, device, dtype) for key, value in batch.items()}
    if is_dataclass(batch) and not isinstance(batch, type):
        values = {field.name: getattr(batch, field.name) for field in fields(batch)}
        return replace(batch, **{name: moved(value, device, dtype) for name, value in values.items()})
    if isinstance(batch, tuple) and hasattr(batch, "_fields"):
        return type(batch)(*(moved(value, device, dtype) for value in batch))
    if isinstance(batch, list | tuple):
        return type(batch)(moved(value, device, dtype) for value in batch)
    if device is not None and hasattr(batch, "to") and callable(batch.to):
        return batch.to(device)
    return batch
