"""Rows that are taken again, so that a set with too few of them still fills a batch: for memory, not for learning.

A search for the largest batch asks what a batch costs. That does not hang on which rows it holds.
"""

from __future__ import annotations

from typing import Any

import lightning.pytorch as pl
import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset, IterableDataset, RandomSampler

from accelsweep.workloads.loading.rows import Rows
from accelsweep.workloads.loading.stream import rank_and_size


class RepeatedRows:
    """`count` rows of a set that has fewer, taken from the first again after the last."""

    def __init__(self, rows: Rows, count: int) -> None:
        """`rows` has one row at least."""
        self._rows, self._count = rows, count

    @classmethod
    def enough(cls, rows: Rows, batch_size: int) -> Rows:
        """Return `rows`, repeated where they are too few for one batch on each rank."""
        needed = batch_size * rank_and_size()[1]
        return cls(rows, needed) if 0 < len(rows) < needed else rows

    @property
    def device(self) -> torch.device:
        """The device of the rows."""
        return self._rows.device

    def __len__(self) -> int:
        """Return the number of rows, the repeated ones too."""
        return self._count

    def take(self, rows: Tensor) -> tuple[Tensor, ...]:
        """Return these rows (int64, (n,))."""
        return self._rows.take(rows % len(self._rows))

    def subset(self, rows: Tensor) -> RepeatedRows:
        """Return as many of the rows; which ones makes no difference here."""
        return RepeatedRows(self._rows, len(rows))


class RepeatedSet(Dataset[Any]):
    """The same for a data set of the user's, behind a DataLoader."""

    def __init__(self, rows: Any, count: int) -> None:
        """`rows` has `len()` and `[number]`."""
        self.rows, self._count = rows, count

    def __len__(self) -> int:
        """Return the number of items, the repeated ones too."""
        return self._count

    def __getitem__(self, number: int) -> Any:
        """Return an item."""
        return self.rows[number % len(self.rows)]


def repeat_rows(data: pl.LightningDataModule, batch_size: int) -> None:
    """Make the training loader of `data` repeat its rows where they are too few for one batch on each rank.

    A loader that is no DataLoader, has a sampler of its own or a stream, stays as it is.
    """
    if hasattr(data, "repeats_rows"):
        data.repeats_rows = True
        return
    real, needed = data.train_dataloader, batch_size * rank_and_size()[1]

    def train_dataloader() -> Any:
        loader = real()
        return _repeated(loader, needed) if _too_short(loader, needed) else loader

    data.train_dataloader = train_dataloader  # type: ignore[method-assign]


def _too_short(loader: Any, needed: int) -> bool:
    if not isinstance(loader, DataLoader) or loader.batch_size is None:
        return False
    rows = loader.dataset
    return not isinstance(rows, IterableDataset) and hasattr(rows, "__len__") and 0 < len(rows) < needed


def _repeated(loader: DataLoader[Any], needed: int) -> DataLoader[Any]:
    return DataLoader(
        RepeatedSet(loader.dataset, needed),
        batch_size=loader.batch_size,
        shuffle=isinstance(loader.sampler, RandomSampler),
        num_workers=loader.num_workers,
        collate_fn=loader.collate_fn,
        pin_memory=loader.pin_memory,
        drop_last=loader.drop_last,
    )
