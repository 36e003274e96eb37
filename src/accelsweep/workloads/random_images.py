"""Random images of any shape: fresh noise for every batch, never zeros.

Zeros are compressed, skipped or multiplied with less power: they run up to 10 % too fast. The noise carries no
information about the class, so only speed means anything here.
"""

from __future__ import annotations

from collections.abc import Iterator

import lightning.pytorch as pl
import torch
from torch import Tensor
from torch.utils.data import DataLoader, IterableDataset, get_worker_info

from accelsweep.workloads.stream import loader_of, rank_and_size


class _Noise(IterableDataset[tuple[Tensor, Tensor]]):
    def __init__(self, shape: tuple[int, ...], classes: int, seed: int, batches: int | None) -> None:
        self._shape, self._classes, self._seed, self._batches = shape, classes, seed, batches

    def __iter__(self) -> Iterator[tuple[Tensor, Tensor]]:
        worker = get_worker_info()
        rank, _ = rank_and_size()
        stream = rank * 1024 + (0 if worker is None else worker.id)
        generator = torch.Generator().manual_seed(self._seed * 1_000_003 + stream)
        made = 0
        while self._batches is None or made < self._batches:
            images = torch.randn(self._shape, generator=generator)
            yield images, torch.randint(self._classes, (self._shape[0],), generator=generator)
            made += 1


class RandomImages(pl.LightningDataModule):
    """Normal noise of shape (batch_size, channels, image_size, image_size) with random classes, made in the loader."""

    def __init__(
        self,
        batch_size: int,
        seed: int = 0,
        image_size: int = 32,
        channels: int = 3,
        classes: int = 10,
        num_workers: int = 0,
        pin_memory: bool = False,
    ) -> None:
        """`batch_size` is per rank; `seed` and the rank decide the noise."""
        super().__init__()
        self._shape = (batch_size, channels, image_size, image_size)
        self._classes, self._seed = classes, seed
        self._num_workers, self._pin_memory = num_workers, pin_memory

    def train_dataloader(self) -> DataLoader[tuple[Tensor, Tensor]]:
        """Return an endless stream of noise."""
        return loader_of(_Noise(self._shape, self._classes, self._seed, None), self._num_workers, self._pin_memory)

    def val_dataloader(self) -> DataLoader[tuple[Tensor, Tensor]]:
        """Return four batches of noise."""
        return loader_of(_Noise(self._shape, self._classes, self._seed + 1, 4))
