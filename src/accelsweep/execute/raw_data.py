"""How the bare loop gets its batches: the data module's hooks in order, one loader, batches moved to the device."""

from __future__ import annotations

from typing import Any

import lightning.pytorch as pl
import torch
from torch import Tensor
from torch.utils.data import DataLoader, DistributedSampler, IterableDataset, RandomSampler

from accelsweep.core.errors import Unsupported
from accelsweep.execute.process import Place


def set_up(data: pl.LightningDataModule, place: Place) -> None:
    """Prepare the data once per host, then set it up on every rank."""
    if place.local_rank == 0:
        data.prepare_data()
    if place.size > 1:
        torch.distributed.barrier()
    data.setup("fit")


def one_loader(data: pl.LightningDataModule, place: Place) -> DataLoader[Any]:
    """Return the training loader, with a sampler for this rank where its data set has rows. Raises Unsupported."""
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


def moved(batch: Any, device: torch.device, dtype: torch.dtype | None) -> Any:
    """Return `batch` on `device`, its floating tensors as `dtype` (None leaves them)."""
    if isinstance(batch, Tensor):
        there = batch.to(device, non_blocking=True)
        return there.to(dtype) if dtype is not None and there.is_floating_point() else there
    if isinstance(batch, dict):
        return {key: moved(value, device, dtype) for key, value in batch.items()}
    if isinstance(batch, list | tuple):
        return type(batch)(moved(value, device, dtype) for value in batch)
    return batch
