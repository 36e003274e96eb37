"""The training stream: endless, shuffled anew each pass, without short batches, and disjoint between ranks.

No epoch boundary can fall into a timed window, and Lightning, which would give every rank its own sampler, leaves an
iterable data set alone.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor
from torch.utils.data import DataLoader, IterableDataset, get_worker_info

from accelsweep.base.errors import InputError
from accelsweep.workloads.loading.preprocess import Preprocess
from accelsweep.workloads.loading.rows import Rows


def rank_and_size() -> tuple[int, int]:
    """Return this process's rank and the number of ranks, from RANK and WORLD_SIZE; alone where they are not set."""
    return int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1"))


class EndlessBatches(IterableDataset[tuple[Tensor, ...]]):
    """Batches of `batch_size` of the `rows`, for ever, for this rank.

    Each pass shuffles all rows with a generator seeded by `seed` and the pass, the same on every rank. Rank r takes the
    rows r, r + size, ... of it, so ranks never see the same row in one pass. Rows that would make a short batch are
    dropped for that pass. Loader worker w of n yields every n-th batch, so that their number does not change the
    training.
    """

    def __init__(
        self,
        rows: Rows,
        batch_size: int,
        seed: int,
        augment: Preprocess | None = None,
        finish: Callable[[Any], Any] | None = None,
    ) -> None:
        """`augment` adds its random draws to each batch as the last tensor; `finish` is called with each batch.

        Raises InputError where a rank's share of the rows is less than one batch.
        """
        rank, size = rank_and_size()
        share = len(rows) // size
        if batch_size > share:
            raise InputError(
                f"batch_size={batch_size} is more than the {share} training samples of each of the {size} ranks: "
                "lower batch_size, or use a larger data set (data=random_images)"
            )
        self._rows, self.batch_size, self._seed, self._rank, self._size = rows, batch_size, seed, rank, size
        self._augment, self._finish = augment, finish

    def __iter__(self) -> Iterator[Any]:
        """Yield tuples of tensors (batch_size, ...), or the results of `finish`."""
        for rows, *draws in _every_nth(self._passes()):
            batch = (*self._rows.take(rows), *draws)
            yield batch if self._finish is None else self._finish(batch)

    def _passes(self) -> Iterator[tuple[Tensor, ...]]:
        """Yield the row numbers of each batch of each pass, with their draws; they move to the rows once a pass."""
        count = len(self._rows)
        usable = count // self._size // self.batch_size * self.batch_size
        generator = torch.Generator()
        number = 0
        while True:
            generator.manual_seed(self._seed * 1_000_003 + number)
            chosen = [torch.randperm(count, generator=generator)]
            if self._augment is not None:
                chosen.append(self._augment.draw(count, generator))
            mine = (tensor[self._rank :: self._size][:usable].to(self._rows.device) for tensor in chosen)
            yield from zip(*(torch.split(tensor, self.batch_size) for tensor in mine), strict=True)
            number += 1


class WholeSet(IterableDataset[tuple[Tensor, ...]]):
    """Every one of the `rows` once, in order, on every rank: the exact validation set, nothing padded or doubled."""

    finite = True

    def __init__(self, rows: Rows, batch_size: int, finish: Callable[[Any], Any] | None = None) -> None:
        """The last batch may be short; `finish` is called with each."""
        self._rows, self.batch_size, self._finish = rows, batch_size, finish

    def __iter__(self) -> Iterator[Any]:
        """Yield tuples of tensors (at most batch_size, ...), or the results of `finish`."""
        everything = torch.arange(len(self._rows), device=self._rows.device)
        for rows in _every_nth(iter(torch.split(everything, self.batch_size))):
            batch = self._rows.take(rows)
            yield batch if self._finish is None else self._finish(batch)


def _every_nth(batches: Iterator[Any]) -> Iterator[Any]:
    """Yield the batches that are this loader process's: every n-th of n processes; all outside of one."""
    worker = get_worker_info()
    first, every = (0, 1) if worker is None else (worker.id, worker.num_workers)
    return (batch for number, batch in enumerate(batches) if number % every == first)


def loader_of(
    batches: IterableDataset[Any],
    num_workers: int = 0,
    pin_memory: bool = False,
    prefetch_factor: int | None = None,
) -> DataLoader[Any]:
    """Return a DataLoader over a data set that yields whole batches."""
    return DataLoader(
        batches,
        batch_size=None,
        num_workers=num_workers,
        pin_memory=pin_memory,
        prefetch_factor=prefetch_factor,
        persistent_workers=num_workers > 0,
    )
