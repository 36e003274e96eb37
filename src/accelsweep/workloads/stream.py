"""The training stream: endless, shuffled anew each pass, without short batches, and disjoint between ranks.

No epoch boundary can fall into a timed window, and Lightning, which would give every rank its own sampler, leaves an
iterable data set alone.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor
from torch.utils.data import DataLoader, IterableDataset, get_worker_info


def rank_and_size() -> tuple[int, int]:
    """Return this process's rank and the number of ranks, from RANK and WORLD_SIZE; alone where they are not set."""
    return int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1"))


class EndlessBatches(IterableDataset[tuple[Tensor, ...]]):
    """Batches of `batch_size` rows of `tensors`, for ever, for this rank.

    Each pass shuffles all rows with a generator seeded by `seed` and the pass, the same on every rank; rank r takes the
    rows r, r + size, ... of it, so ranks never see the same row in one pass. Rows that would make a short batch are
    dropped for that pass. Loader worker w of n yields every n-th batch, so that their number does not change what is
    trained.
    """

    def __init__(self, tensors: tuple[Tensor, ...], batch_size: int, seed: int) -> None:
        """All tensors have shape (rows, ...). Raises ValueError where a rank's share is less than one batch."""
        rank, size = rank_and_size()
        share = len(tensors[0]) // size
        if batch_size > share:
            raise ValueError(
                f"batch_size={batch_size} is more than the {share} training samples of each of the {size} ranks: "
                "lower batch_size, or use a larger data set (data=random_images)"
            )
        self._tensors, self._batch_size, self._seed, self._rank, self._size = tensors, batch_size, seed, rank, size

    def __iter__(self) -> Iterator[tuple[Tensor, ...]]:
        """Yield tuples of tensors (batch_size, ...)."""
        worker = get_worker_info()
        first, every = (0, 1) if worker is None else (worker.id, worker.num_workers)
        for number, rows in enumerate(self._row_batches()):
            if number % every == first:
                yield tuple(tensor[rows] for tensor in self._tensors)

    def _row_batches(self) -> Iterator[Tensor]:
        rows = len(self._tensors[0])
        usable = rows // self._size // self._batch_size * self._batch_size
        generator = torch.Generator()
        number = 0
        while True:
            generator.manual_seed(self._seed * 1_000_003 + number)
            mine = torch.randperm(rows, generator=generator)[self._rank :: self._size][:usable]
            yield from torch.split(mine, self._batch_size)
            number += 1


class WholeSet(IterableDataset[tuple[Tensor, ...]]):
    """Every row of `tensors` once, in order, on every rank: the exact validation set, nothing padded or doubled."""

    def __init__(self, tensors: tuple[Tensor, ...], batch_size: int) -> None:
        """The last batch may be short."""
        self._tensors, self._batch_size = tensors, batch_size

    def __iter__(self) -> Iterator[tuple[Tensor, ...]]:
        """Yield tuples of tensors (at most batch_size, ...). Meant for a loader without worker processes."""
        for begin in range(0, len(self._tensors[0]), self._batch_size):
            yield tuple(tensor[begin : begin + self._batch_size] for tensor in self._tensors)


def loader_of(batches: IterableDataset[Any], num_workers: int = 0, pin_memory: bool = False) -> DataLoader[Any]:
    """Return a DataLoader over a data set that yields whole batches."""
    return DataLoader(
        batches,
        batch_size=None,
        num_workers=num_workers,
        pin_memory=pin_memory,
        persistent_workers=num_workers > 0,
    )
