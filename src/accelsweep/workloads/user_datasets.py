"""`data=dataset`: serves the user's own torch data sets, map-style or iterable, as an endless training stream.

The stream follows the same rules as built-in data: no epoch boundary occurs in a window, there are no short batches,
map-style data sets are reshuffled in each pass using the run's seed, and no two ranks use the same sample in one pass.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from typing import Any

import lightning.pytorch as pl
from torch.utils.data import BatchSampler, DataLoader, DistributedSampler, IterableDataset, default_collate

from accelsweep.errors import InputError
from accelsweep.workloads.training_stream import (
    make_loader,
    rank_and_size,
    refuse_short_set,
    share_of_worker,
    whole_batch_samples,
    worker_and_count,
)

Collate = Callable[[list[Any]], Any]


class DataSets(pl.LightningDataModule):
    """A training and a validation set: map-style (`__len__` and `__getitem__`) or iterable (`__iter__`)."""

    def __init__(
        self,
        batch_size: int,
        train: Any,
        validation: Any = None,
        collate: Collate | None = None,
        seed: int = 0,
        shuffle: bool = True,
        shard: bool = True,
        num_workers: int = 0,
        pin_memory: bool = False,
        prefetch_factor: int | None = None,
    ) -> None:
        """`batch_size` is per rank, `seed` determines the order of rows, and `collate` turns samples into a batch.

        `shard` distributes the samples of an iterable data set over ranks and loader workers. Set it to False for a
        data set that shards itself, using RANK and `get_worker_info`.
        """
        super().__init__()
        for name, dataset in {"train": train, **({} if validation is None else {"validation": validation})}.items():
            if not (_is_map_style(dataset) or hasattr(dataset, "__iter__")):
                raise InputError(
                    f"data.{name}: a {type(dataset).__name__} is not a data set; it must define __len__ and "
                    "__getitem__, or __iter__"
                )
        self._train, self._validation = train, validation
        self._batch_size, self._collate, self._seed = batch_size, collate or default_collate, seed
        self._shuffle, self._shard = shuffle, shard
        self._num_workers, self._pin_memory, self._prefetch_factor = num_workers, pin_memory, prefetch_factor

    @property
    def epoch_samples(self) -> int | None:
        """Samples in one pass over the training set, across all ranks, in whole batches; None if unknown."""
        if not hasattr(self._train, "__len__"):
            return None
        rows, (_, ranks) = len(self._train), rank_and_size()
        if _is_map_style(self._train):
            return whole_batch_samples(rows, self._batch_size)
        parts = ranks * max(1, self._num_workers)
        if not self._shard and parts > 1:  # its length may be that of one rank's share
            return None
        shares = (len(range(part, rows, parts)) for part in range(parts))
        return sum(share // self._batch_size * self._batch_size for share in shares)

    def train_dataloader(self) -> DataLoader[Any]:
        """Return this rank's endless stream."""
        batches: IterableDataset[Any]
        if _is_map_style(self._train):
            batches = MapStyleBatches(self._train, self._batch_size, self._collate, self._seed, self._shuffle)
        else:
            batches = IterableBatches(self._train, self._batch_size, self._collate, self._shard)
        return make_loader(batches, self._num_workers, self._pin_memory, self._prefetch_factor)

    def val_dataloader(self) -> Any:
        """Return the whole validation set, in order and identical on every rank; an empty list if there is none."""
        if self._validation is None:
            return []
        return make_loader(_OnePass(self._validation, self._batch_size, self._collate))


class MapStyleBatches(IterableDataset[Any]):
    """Endless batches from a map-style data set for this rank; loader worker w of n produces every n-th batch."""

    def __init__(self, dataset: Any, batch_size: int, collate: Collate, seed: int, shuffle: bool) -> None:
        """Raises InputError if a rank's share of the rows is smaller than one batch."""
        refuse_short_set(len(dataset), batch_size)
        self._dataset, self.batch_size, self._collate = dataset, batch_size, collate
        rank, size = rank_and_size()
        self._sampler: DistributedSampler[Any] = DistributedSampler(
            dataset, num_replicas=size, rank=rank, shuffle=shuffle, seed=seed, drop_last=True
        )

    def __iter__(self) -> Iterator[Any]:
        """Yield collated batches of exactly `batch_size` samples."""
        for indices in share_of_worker(self._batch_indices()):
            if hasattr(self._dataset, "__getitems__"):  # torch calls this method to fetch several rows at once
                yield self._collate(list(self._dataset.__getitems__(indices)))
            else:
                yield self._collate([self._dataset[index] for index in indices])

    def _batch_indices(self) -> Iterator[list[int]]:
        for number in itertools.count():
            self._sampler.set_epoch(number)
            yield from BatchSampler(self._sampler, self.batch_size, drop_last=True)


class IterableBatches(IterableDataset[Any]):
    """Endless batches from an iterable data set, restarted whenever it ends; samples in a short batch are dropped."""

    def __init__(self, samples: Any, batch_size: int, collate: Collate, shard: bool) -> None:
        """If `shard` is set, each rank and loader worker uses every n-th sample."""
        self._samples, self.batch_size, self._collate, self._shard = samples, batch_size, collate, shard

    def __iter__(self) -> Iterator[Any]:
        """Yield collated batches of exactly `batch_size` samples.

        Raises InputError if a pass yields less than one batch.
        """
        for number in itertools.count():
            if hasattr(self._samples, "set_epoch"):
                self._samples.set_epoch(number)
            is_empty = True
            for batch in _batched(self._shard_samples(), self.batch_size):
                if len(batch) == self.batch_size:
                    is_empty = False
                    yield self._collate(batch)
            if is_empty:
                raise InputError(
                    f"this rank's share of the training set is smaller than one batch of {self.batch_size}: lower "
                    "batch_size, or use a larger data set"
                )

    def _shard_samples(self) -> Iterator[Any]:
        if not self._shard:
            return iter(self._samples)
        (rank, ranks), (worker, workers) = rank_and_size(), worker_and_count()
        return itertools.islice(self._samples, rank * workers + worker, None, ranks * workers)


class _OnePass(IterableDataset[Any]):
    def __init__(self, samples: Any, batch_size: int, collate: Collate) -> None:
        self.finite = hasattr(samples, "__len__")
        self._samples, self._batch_size, self._collate = samples, batch_size, collate

    def __iter__(self) -> Iterator[Any]:
        dataset = self._samples
        by_index = _is_map_style(dataset)
        samples = (dataset[index] for index in range(len(dataset))) if by_index else iter(dataset)
        for batch in _batched(samples, self._batch_size):
            yield self._collate(batch)


def _is_map_style(samples: Any) -> bool:
    return not isinstance(samples, IterableDataset) and hasattr(samples, "__getitem__") and hasattr(samples, "__len__")


def _batched(samples: Iterator[Any], size: int) -> Iterator[list[Any]]:
    """Yield lists of `size` samples; the last one may be shorter. itertools.batched requires Python 3.12."""
    while batch := list(itertools.islice(samples, size)):
        yield batch
