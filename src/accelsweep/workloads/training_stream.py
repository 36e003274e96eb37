"""The training stream: endless, shuffled anew each pass, without short batches, and disjoint between ranks.

No epoch boundary can fall into a timed window, and Lightning, which would give every rank its own sampler, leaves an
iterable data set alone.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, Self

import lightning.pytorch as pl
import torch
from torch import Tensor
from torch.nn import functional
from torch.utils.data import DataLoader, Dataset, IterableDataset, RandomSampler, get_worker_info

from accelsweep.errors import InputError

# Preprocessing of images of bytes: random crop and flip, then normalisation; the same code on the CPU and on a device.


@dataclass(frozen=True)
class Preprocess:
    """The preprocessing of images (samples, channels, height, width) in uint8.

    `full_scale` is the byte that means 1. The result is `(image / full_scale - mean) / std`; `mean` and `std` are for
    all channels, or one for each. An image gets a border of `crop_padding` black pixels. Then a part of its former size
    is cut out at random. `flip` mirrors every second image, at random.
    """

    full_scale: float = 255.0
    mean: float | tuple[float, ...] = 0.0
    std: float | tuple[float, ...] = 1.0
    crop_padding: int = 0
    flip: bool = False

    def draw(self, count: int, generator: torch.Generator) -> Tensor:
        """Return for `count` samples the top and left of the crop and whether to mirror: int64 (count, 3)."""
        corners = torch.randint(2 * self.crop_padding + 1, (count, 2), generator=generator)
        mirrored = torch.randint(2 if self.flip else 1, (count, 1), generator=generator)
        return torch.cat((corners, mirrored), dim=1)

    def __call__(self, batch: Any, dtype: torch.dtype = torch.float32) -> Any:
        """Return (images, targets) for (images, targets) or (images, targets, draws); as it is if it holds no bytes.

        Images become `dtype`. Without draws they are normalised only, as a validation set is.
        """
        images, targets, *draws = batch
        if images.dtype is not torch.uint8:
            return batch
        if draws and (self.crop_padding or self.flip):
            images = self._cropped(images, draws[0])
        return self.normalised(images, dtype), targets

    def normalised(self, images: Tensor, dtype: torch.dtype = torch.float32) -> Tensor:
        """Return `images` as numbers of `dtype`; computed in float32."""
        scaled = images.to(torch.float32) / self.full_scale
        return ((scaled - _per_channel(self.mean, scaled)) / _per_channel(self.std, scaled)).to(dtype)

    def _cropped(self, images: Tensor, draws: Tensor) -> Tensor:
        count, channels, height, width = images.shape
        top, left, mirrored = draws.unbind(1)

        def numbers(size: int) -> Tensor:
            return torch.arange(size, device=images.device)

        rows = top[:, None] + numbers(height)
        columns = left[:, None] + torch.where(mirrored[:, None] == 1, numbers(width).flip(0), numbers(width))
        padded = functional.pad(images, (self.crop_padding,) * 4)
        sample, channel = numbers(count)[:, None, None, None], numbers(channels)[:, None, None]
        return padded[sample, channel, rows[:, None, :, None], columns[:, None, None, :]]


def _per_channel(value: float | tuple[float, ...], images: Tensor) -> float | Tensor:
    if isinstance(value, int | float):
        return value
    return torch.tensor(value, dtype=images.dtype, device=images.device)[:, None, None]


# The sources of a finite set's rows: tensors in the memory of host or device, or items read one by one.


class Rows(Protocol):
    """A set whose samples are numbered from 0."""

    @property
    def device(self) -> torch.device:
        """The device that row numbers must be on, and that batches will be on."""

    def __len__(self) -> int:
        """Return the number of samples."""

    def take(self, rows: Tensor) -> tuple[Tensor, ...]:
        """Return the samples with these numbers (int64, (n,)) as tensors (n, ...)."""

    def subset(self, rows: Tensor) -> Self:
        """Return the set of these rows, in this order."""


class Tensors:
    """A set in memory: tensors (samples, ...) of equal length."""

    def __init__(self, *tensors: Tensor) -> None:
        """All on one device."""
        self.tensors = tensors

    @property
    def device(self) -> torch.device:
        """The device of the tensors."""
        return self.tensors[0].device

    def __len__(self) -> int:
        """Return the number of samples."""
        return len(self.tensors[0])

    def take(self, rows: Tensor) -> tuple[Tensor, ...]:
        """Return copies of these rows."""
        return tuple(tensor[rows] for tensor in self.tensors)

    def subset(self, rows: Tensor) -> Tensors:
        """Return a set with copies of these rows."""
        return Tensors(*self.take(rows))

    def to(self, device: torch.device) -> Tensors:
        """Return the set on `device`: itself if it is there."""
        return Tensors(*(tensor.to(device) for tensor in self.tensors))


class Excerpt(Tensors):
    """Some rows of a set in memory, which is not copied: batches are taken out of the whole."""

    def __init__(self, whole: Tensors, rows: Tensor) -> None:
        """`rows` (int64, (n,)) are the numbers of the part's rows, in order."""
        super().__init__(*whole.tensors)
        self._rows = rows.to(whole.device)

    def __len__(self) -> int:
        """Return the number of rows in this part."""
        return len(self._rows)

    def take(self, rows: Tensor) -> tuple[Tensor, ...]:
        """Return copies of these rows of the part."""
        return super().take(self._rows[rows])

    def subset(self, rows: Tensor) -> Excerpt:
        """Return the part of these rows of the part; nothing is copied."""
        return Excerpt(Tensors(*self.tensors), self._rows[rows.to(self._rows.device)])

    def to(self, device: torch.device) -> Excerpt:
        """Return the part, of the whole on `device`."""
        return Excerpt(super().to(device), self._rows)


class Items:
    """A set that is read item by item, such as images in files: `convert` makes each item a tuple of tensors."""

    def __init__(
        self, items: Sequence[Any] | Any, convert: Callable[[Any], tuple[Tensor, ...]], rows: Tensor | None = None
    ) -> None:
        """`items` has `len()` and `[number]`; `rows` are the numbers of those that belong to the set (None: all)."""
        self._items, self._convert = items, convert
        self._rows = torch.arange(len(items)) if rows is None else rows

    @property
    def device(self) -> torch.device:
        """The host's memory."""
        return torch.device("cpu")

    def __len__(self) -> int:
        """Return the number of samples."""
        return len(self._rows)

    def take(self, rows: Tensor) -> tuple[Tensor, ...]:
        """Read, convert and stack these rows."""
        samples = [self._convert(self._items[number]) for number in self._rows[rows].tolist()]
        return tuple(torch.stack(parts) for parts in zip(*samples, strict=True))

    def subset(self, rows: Tensor) -> Items:
        """Return the set of these rows; nothing is read."""
        return Items(self._items, self._convert, self._rows[rows])

    def in_memory(self) -> Tensors:
        """Read everything, once."""
        return Tensors(*self.take(torch.arange(len(self))))


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


# Rows that are taken again, so that a set with too few of them still fills a batch: for memory, not for learning.


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
