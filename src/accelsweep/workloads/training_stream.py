"""The training stream: endless, reshuffled in each pass, without short batches, and disjoint between ranks.

In an endless stream, no epoch boundary can occur in a timed window. The stream is an iterable data set, so Lightning
does not replace its sampler. Rows come from memory (`TensorRows`) or are read one by one (`LazyRows`); `Preprocess`
crops, flips and normalises images, using the same code on the host and on a device.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.nn import functional
from torch.utils.data import DataLoader, Dataset, IterableDataset, RandomSampler, get_worker_info

from accelsweep.errors import InputError

if TYPE_CHECKING:
    import lightning.pytorch as pl


@dataclass(frozen=True)
class Preprocess:
    """Random crop, random flip and normalisation of uint8 images (samples, channels, height, width).

    The result is `(image / full_scale - mean) / std`, with one `mean` and `std` for all channels or one per channel.
    Before that, each image is padded with `crop_padding` black pixels on every side and randomly cropped to its
    original size; `flip` mirrors it with probability 1/2.
    """

    full_scale: float = 255.0
    mean: float | tuple[float, ...] = 0.0
    std: float | tuple[float, ...] = 1.0
    crop_padding: int = 0
    flip: bool = False

    def draw(self, count: int, generator: torch.Generator) -> Tensor:
        """Draw each crop's top and left offsets and whether to mirror it, for `count` samples: int64 (count, 3)."""
        corners = torch.randint(2 * self.crop_padding + 1, (count, 2), generator=generator)
        mirrored = torch.randint(2 if self.flip else 1, (count, 1), generator=generator)
        return torch.cat((corners, mirrored), dim=1)

    def __call__(self, batch: Any, dtype: torch.dtype = torch.float32) -> Any:
        """Return (images, targets) from (images, targets) or (images, targets, draws); unchanged if not uint8.

        Images are converted to `dtype`. Without draws, they are only normalised, as in a validation set.
        """
        images, targets, *draws = batch
        if images.dtype is not torch.uint8:
            return batch
        if draws and (self.crop_padding or self.flip):
            images = self._crop_and_flip(images, draws[0])
        return self.normalize(images, dtype), targets

    def normalize(self, images: Tensor, dtype: torch.dtype = torch.float32) -> Tensor:
        """Return `images` scaled and normalised, computed in float32 and converted to `dtype`."""
        scaled = images.to(torch.float32) / self.full_scale
        return ((scaled - _per_channel(self.mean, scaled)) / _per_channel(self.std, scaled)).to(dtype)

    def _crop_and_flip(self, images: Tensor, draws: Tensor) -> Tensor:
        top, left, mirrored = draws.unbind(1)
        samples, channels, height, width = (torch.arange(size, device=images.device) for size in images.shape)
        rows = top[:, None] + height
        columns = left[:, None] + torch.where(mirrored[:, None] == 1, width.flip(0), width)
        padded = functional.pad(images, (self.crop_padding,) * 4)
        return padded[
            samples[:, None, None, None], channels[:, None, None], rows[:, None, :, None], columns[:, None, None, :]
        ]


def _per_channel(value: float | tuple[float, ...], images: Tensor) -> float | Tensor:
    if isinstance(value, int | float):
        return value
    return torch.tensor(value, dtype=images.dtype, device=images.device)[:, None, None]


class TensorRows:
    """A data set in memory: tensors (rows, ...) of equal length on one device."""

    def __init__(self, *tensors: Tensor) -> None:
        """The inputs come first, followed by the targets."""
        self.tensors = tensors

    @property
    def device(self) -> torch.device:
        """The device of the tensors. Row numbers must be on the same device."""
        return self.tensors[0].device

    def __len__(self) -> int:
        """Return the number of rows."""
        return len(self.tensors[0])

    def take(self, rows: Tensor) -> tuple[Tensor, ...]:
        """Return copies of the rows with these numbers (int64, (n,)) as tensors (n, ...)."""
        return tuple(tensor[rows] for tensor in self.tensors)

    def subset(self, rows: Tensor) -> TensorRows:
        """Return a data set with copies of these rows."""
        return TensorRows(*self.take(rows))

    def to(self, device: torch.device) -> TensorRows:
        """Return the data set on `device`; tensors that are already on it are not copied."""
        return TensorRows(*(tensor.to(device) for tensor in self.tensors))


class TensorSubset(TensorRows):
    """A subset of the rows in memory, without copies: batches are gathered from the full tensors."""

    def __init__(self, full: TensorRows, rows: Tensor) -> None:
        """`rows` (int64, (n,)) contains the row numbers in `full` of the subset's rows, in order."""
        super().__init__(*full.tensors)
        self._rows = rows.to(full.device)

    def __len__(self) -> int:
        """Return the number of rows in the subset."""
        return len(self._rows)

    def take(self, rows: Tensor) -> tuple[Tensor, ...]:
        """Return copies of these rows of the subset."""
        return super().take(self._rows[rows])

    def subset(self, rows: Tensor) -> TensorSubset:
        """Return a subset that contains these rows of this subset, without copying them."""
        return TensorSubset(TensorRows(*self.tensors), self._rows[rows.to(self._rows.device)])

    def to(self, device: torch.device) -> TensorSubset:
        """Return the same subset of the full tensors on `device`."""
        return TensorSubset(super().to(device), self._rows)


class LazyRows:
    """A data set, such as image files, that is read item by item; `convert` turns each item into a tuple of tensors."""

    device = torch.device("cpu")

    def __init__(self, items: Any, convert: Callable[[Any], tuple[Tensor, ...]], rows: Tensor | None = None) -> None:
        """`items` supports `len()` and `[number]`; `rows` are the numbers of the items to include (None: all)."""
        self._items, self._convert = items, convert
        self._rows = torch.arange(len(items)) if rows is None else rows

    def __len__(self) -> int:
        """Return the number of rows."""
        return len(self._rows)

    def take(self, rows: Tensor) -> tuple[Tensor, ...]:
        """Read, convert and stack these rows."""
        samples = [self._convert(self._items[number]) for number in self._rows[rows].tolist()]
        return tuple(torch.stack(parts) for parts in zip(*samples, strict=True))

    def subset(self, rows: Tensor) -> LazyRows:
        """Return a data set with these rows, without reading anything."""
        return LazyRows(self._items, self._convert, self._rows[rows])

    def load(self) -> TensorRows:
        """Read everything into memory, once."""
        return TensorRows(*self.take(torch.arange(len(self))))


Rows = TensorRows | LazyRows
"""A finite data set that is read in batches, by row number."""


def view(rows: Rows, numbers: Tensor) -> Rows:
    """Return a data set with these rows, without copying them."""
    return TensorSubset(rows, numbers) if type(rows) is TensorRows else rows.subset(numbers)


def rank_and_size() -> tuple[int, int]:
    """Return this process's rank and the number of ranks from RANK and WORLD_SIZE; (0, 1) if they are not set."""
    return int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1"))


def worker_and_count() -> tuple[int, int]:
    """Return the index of this loader process and the number of loader processes; (0, 1) outside a loader process."""
    worker = get_worker_info()
    return (0, 1) if worker is None else (worker.id, worker.num_workers)


def share_of_worker(batches: Iterable[Any]) -> Iterator[Any]:
    """In loader process w of n, yield every n-th of `batches`, starting with the w-th; elsewhere, yield all."""
    worker, workers = worker_and_count()
    return itertools.islice(batches, worker, None, workers)


def whole_batch_samples(rows: int, batch_size: int) -> int:
    """Return the number of samples in whole batches in one pass over `rows` rows, across all ranks."""
    _, ranks = rank_and_size()
    return rows // ranks // batch_size * batch_size * ranks


def refuse_short_set(rows: int, batch_size: int) -> None:
    """Raise InputError if a rank's share of `rows` rows is smaller than one batch."""
    _, ranks = rank_and_size()
    if rows // ranks < batch_size:
        raise InputError(
            f"batch_size={batch_size} exceeds the {rows // ranks} training samples of each of the {ranks} ranks: "
            "lower batch_size, or use a larger data set, such as data=random_images"
        )


class EndlessBatches(IterableDataset[tuple[Tensor, ...]]):
    """Endless batches of `batch_size` rows for this rank.

    Each pass shuffles all rows with a generator seeded with `seed` and the pass number, the same on every rank. Rank r
    uses rows r, r + size, ... in that order, so no two ranks process the same row in one pass. Rows that would form a
    short batch are dropped in that pass. Loader worker w of n yields every n-th batch, so the number of workers does
    not affect training.
    """

    def __init__(
        self,
        rows: Rows,
        batch_size: int,
        seed: int,
        augment: Preprocess | None = None,
        finish: Callable[[Any], Any] | None = None,
    ) -> None:
        """`augment` appends its random draws to each batch as the last tensor; `finish` is called with each batch.

        Raises InputError if a rank's share of the rows is smaller than one batch.
        """
        refuse_short_set(len(rows), batch_size)
        self._rows, self.batch_size, self._seed = rows, batch_size, seed
        self._rank, self._size = rank_and_size()
        self._augment, self._finish = augment, finish

    def __iter__(self) -> Iterator[Any]:
        """Yield tuples of tensors (batch_size, ...), or the results of `finish`."""
        for rows, *draws in share_of_worker(self._batch_rows()):
            batch = (*self._rows.take(rows), *draws)
            yield batch if self._finish is None else self._finish(batch)

    def _batch_rows(self) -> Iterator[tuple[Tensor, ...]]:
        """Yield each batch's row numbers and random draws endlessly, copying them to the device once per pass."""
        count = len(self._rows)
        usable = count // self._size // self.batch_size * self.batch_size
        generator = torch.Generator()
        for number in itertools.count():
            generator.manual_seed(self._seed * 1_000_003 + number)
            drawn = [torch.randperm(count, generator=generator)]
            if self._augment is not None:
                drawn.append(self._augment.draw(count, generator))
            shares = (tensor[self._rank :: self._size][:usable].to(self._rows.device) for tensor in drawn)
            yield from zip(*(torch.split(tensor, self.batch_size) for tensor in shares), strict=True)


class ValidationBatches(IterableDataset[tuple[Tensor, ...]]):
    """Yields every row once, in order, on every rank: the exact validation set, without padding or duplicates."""

    finite = True

    def __init__(self, rows: Rows, batch_size: int, finish: Callable[[Any], Any] | None = None) -> None:
        """The last batch may be short; `finish` is called with each batch."""
        self._rows, self.batch_size, self._finish = rows, batch_size, finish

    def __iter__(self) -> Iterator[Any]:
        """Yield tuples of tensors (at most batch_size, ...), or the results of `finish`."""
        numbers = torch.arange(len(self._rows), device=self._rows.device)
        for rows in share_of_worker(torch.split(numbers, self.batch_size)):
            batch = self._rows.take(rows)
            yield batch if self._finish is None else self._finish(batch)


def make_loader(
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


def repeat_to_one_batch(rows: Rows, batch_size: int) -> Rows:
    """Return `rows`, repeated if there are too few for one batch per rank; only for measuring memory."""
    needed = batch_size * rank_and_size()[1]
    return view(rows, torch.arange(needed) % len(rows)) if 0 < len(rows) < needed else rows


class RepeatedDataset(Dataset[Any]):
    """A user's map-style data set, repeated to `count` items."""

    def __init__(self, dataset: Any, count: int) -> None:
        """`dataset` supports `len()` and `[number]`."""
        self.dataset, self._count = dataset, count

    def __len__(self) -> int:
        """Return the number of items, including repeated items."""
        return self._count

    def __getitem__(self, number: int) -> Any:
        """Return an item."""
        return self.dataset[number % len(self.dataset)]


def repeat_training_rows(data: pl.LightningDataModule, batch_size: int) -> None:
    """Make the training loader of `data` repeat its rows if there are too few for one batch on each rank.

    A loader is left unchanged if it is not a DataLoader, has its own batch sampler, or uses an iterable data set.
    """
    if hasattr(data, "repeats_rows"):
        data.repeats_rows = True
        return
    original, needed = data.train_dataloader, batch_size * rank_and_size()[1]

    def train_dataloader() -> Any:
        loader = original()
        if not isinstance(loader, DataLoader) or loader.batch_size is None:
            return loader
        dataset: Any = loader.dataset
        if isinstance(dataset, IterableDataset) or not hasattr(dataset, "__len__") or not 0 < len(dataset) < needed:
            return loader
        return DataLoader(
            RepeatedDataset(dataset, needed),
            batch_size=loader.batch_size,
            shuffle=isinstance(loader.sampler, RandomSampler),
            num_workers=loader.num_workers,
            collate_fn=loader.collate_fn,
            pin_memory=loader.pin_memory,
            drop_last=loader.drop_last,
        )

    data.train_dataloader = train_dataloader  # type: ignore[method-assign]
