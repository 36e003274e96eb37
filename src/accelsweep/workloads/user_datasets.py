"""`data=dataset`: the user's own torch data sets, with rows or iterable, as the endless stream that is measured here.

The stream has the rules of our own data. There is no epoch boundary in a window, and there are no short batches. Each
pass is shuffled anew by the run's seed, and no sample is on two ranks within one pass.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from typing import Any

import lightning.pytorch as pl
from torch.utils.data import (
    BatchSampler,
    DataLoader,
    DistributedSampler,
    IterableDataset,
    default_collate,
    get_worker_info,
)

from accelsweep.errors import InputError
from accelsweep.workloads.training_stream import loader_of, rank_and_size

Collate = Callable[[list[Any]], Any]


class DataSets(pl.LightningDataModule):
    """A training and a validation set. A set with rows has `__len__` and `__getitem__`, an iterable one `__iter__`."""

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
        """`batch_size` is per rank, `seed` orders the rows, `collate` makes a batch of a list of samples.

        `shard` deals the samples of an iterable set out to ranks and loader workers. It is False for a set that does so
        itself, by RANK and `get_worker_info`.
        """
        super().__init__()
        self._train = _checked(train, "train")
        self._validation = None if validation is None else _checked(validation, "validation")
        self._batch_size, self._collate, self._seed = batch_size, collate or default_collate, seed
        self._shuffle, self._shard = shuffle, shard
        self._delivery = (num_workers, pin_memory, prefetch_factor)

    @property
    def epoch_samples(self) -> int | None:
        """Samples of one pass over the training set, of all ranks: those of whole batches; None where nothing tells."""
        if not hasattr(self._train, "__len__"):
            return None
        rows, (_, ranks) = len(self._train), rank_and_size()
        if _has_rows(self._train):
            return rows // ranks // self._batch_size * self._batch_size * ranks
        parts = ranks * max(1, self._delivery[0])
        if not self._shard and parts > 1:  # its length may be that of a share
            return None
        shares = (len(range(part, rows, parts)) for part in range(parts))
        return sum(share // self._batch_size * self._batch_size for share in shares)

    def train_dataloader(self) -> DataLoader[Any]:
        """Return the endless stream of this rank."""
        batches: IterableDataset[Any]
        if _has_rows(self._train):
            batches = EndlessRows(self._train, self._batch_size, self._collate, self._seed, self._shuffle)
        else:
            batches = EndlessSamples(self._train, self._batch_size, self._collate, self._shard)
        return loader_of(batches, *self._delivery)

    def val_dataloader(self) -> Any:
        """Return the whole validation set, in order and the same on every rank; nothing where there is none."""
        if self._validation is None:
            return []
        return loader_of(_Once(self._validation, self._batch_size, self._collate))


class EndlessRows(IterableDataset[Any]):
    """Batches of a set with rows, for ever, for this rank; loader worker w of n makes every n-th batch."""

    def __init__(self, rows: Any, batch_size: int, collate: Collate, seed: int, shuffle: bool) -> None:
        """Raises InputError where a rank's share of the rows is less than one batch."""
        rank, size = rank_and_size()
        if len(rows) // size < batch_size:
            raise InputError(
                f"batch_size={batch_size} is more than the {len(rows) // size} training samples of each of the {size} "
                "ranks: lower batch_size, or use a larger data set"
            )
        self._rows, self.batch_size, self._collate = rows, batch_size, collate
        self._sampler: DistributedSampler[Any] = DistributedSampler(
            rows, num_replicas=size, rank=rank, shuffle=shuffle, seed=seed, drop_last=True
        )

    def __iter__(self) -> Iterator[Any]:
        """Yield collated batches of exactly `batch_size` samples."""
        worker = get_worker_info()
        first, every = (0, 1) if worker is None else (worker.id, worker.num_workers)
        for indices in itertools.islice(self._indices(), first, None, every):
            yield self._collate(_fetched(self._rows, indices))

    def _indices(self) -> Iterator[list[int]]:
        for number in itertools.count():
            self._sampler.set_epoch(number)
            yield from BatchSampler(self._sampler, self.batch_size, drop_last=True)


class EndlessSamples(IterableDataset[Any]):
    """Batches of an iterable set, begun again whenever it ends; samples that would make a short batch are dropped."""

    def __init__(self, samples: Any, batch_size: int, collate: Collate, shard: bool) -> None:
        """With `shard` each rank and loader worker takes every n-th sample."""
        self._samples, self.batch_size, self._collate, self._shard = samples, batch_size, collate, shard

    def __iter__(self) -> Iterator[Any]:
        """Yield collated batches of exactly `batch_size` samples. Raises InputError where a pass has not even one."""
        for number in itertools.count():
            if hasattr(self._samples, "set_epoch"):
                self._samples.set_epoch(number)
            full = (batch for batch in _batched(self._share(), self.batch_size) if len(batch) == self.batch_size)
            given = 0
            for given, batch in enumerate(full, start=1):  # noqa: B007  counted on purpose
                yield self._collate(batch)
            if not given:
                raise InputError(
                    f"this rank's share of the training set is less than one batch of {self.batch_size}: lower "
                    "batch_size, or use a larger data set"
                )

    def _share(self) -> Iterator[Any]:
        if not self._shard:
            return iter(self._samples)
        (rank, size), worker = rank_and_size(), get_worker_info()
        number, workers = (0, 1) if worker is None else (worker.id, worker.num_workers)
        return itertools.islice(self._samples, rank * workers + number, None, size * workers)


class _Once(IterableDataset[Any]):
    def __init__(self, samples: Any, batch_size: int, collate: Collate) -> None:
        self.finite = hasattr(samples, "__len__")
        self._samples, self._batch_size, self._collate = samples, batch_size, collate

    def __iter__(self) -> Iterator[Any]:
        rows = self._samples
        samples = (rows[index] for index in range(len(rows))) if _has_rows(rows) else iter(rows)
        for batch in _batched(samples, self._batch_size):
            yield self._collate(batch)


def _checked(samples: Any, name: str) -> Any:
    if not (_has_rows(samples) or hasattr(samples, "__iter__")):
        raise InputError(
            f"data.{name}: a {type(samples).__name__} is no data set; it needs __len__ and __getitem__, or __iter__"
        )
    return samples


def _has_rows(samples: Any) -> bool:
    return not isinstance(samples, IterableDataset) and hasattr(samples, "__getitem__") and hasattr(samples, "__len__")


def _fetched(rows: Any, indices: list[int]) -> list[Any]:
    """Return the rows, in one call where the set offers that (torch's convention `__getitems__`)."""
    if hasattr(rows, "__getitems__"):
        return list(rows.__getitems__(indices))
    return [rows[index] for index in indices]


def _batched(samples: Iterator[Any], size: int) -> Iterator[list[Any]]:
    """Yield lists of `size` samples, the last one shorter; itertools.batched is of Python 3.12."""
    while batch := list(itertools.islice(samples, size)):
        yield batch
