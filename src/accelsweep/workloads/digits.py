"""Real data without a download: the handwritten digits that scikit-learn ships.

1797 images of 8x8 pixels in 10 classes, a copy of the test set of E. Alpaydin and C. Kaynak's "Optical Recognition of
Handwritten Digits" (UCI). The file is read directly, because importing scikit-learn takes longer than training here.
"""

from __future__ import annotations

import gzip
from importlib.util import find_spec
from pathlib import Path

import lightning.pytorch as pl
import numpy as np
import torch
from torch import Tensor
from torch.utils.data import DataLoader

from accelsweep.workloads.stream import EndlessBatches, WholeSet, loader_of

SPLIT_SEED = 20_240_229
"""Seed of the split into training and validation rows: the same for every run, so that quality is comparable."""


def read_digits() -> tuple[Tensor, Tensor]:
    """Return images (1797, 1, 8, 8) in float32, scaled to 0..1, and classes (1797,) in int64."""
    spec = find_spec("sklearn")
    if spec is None or spec.origin is None:
        raise FileNotFoundError(
            "scikit-learn is not installed, and its digits are this data set: pip install scikit-learn"
        )
    packed = Path(spec.origin).parent / "datasets" / "data" / "digits.csv.gz"
    with gzip.open(packed, "rt", encoding="ascii") as file:
        table = np.array([line.split(",") for line in file], dtype=np.float32)
    images = torch.from_numpy(table[:, :64] / 16.0).reshape(-1, 1, 8, 8)
    return images.contiguous(), torch.from_numpy(table[:, 64].astype(np.int64))


class Digits(pl.LightningDataModule):
    """Handwritten digits: an endless training stream and a fixed validation set of `validation_share` of the rows."""

    def __init__(
        self,
        batch_size: int,
        seed: int = 0,
        validation_share: float = 0.2,
        num_workers: int = 0,
        pin_memory: bool = False,
    ) -> None:
        """`batch_size` is per rank; `seed` orders the training rows."""
        super().__init__()
        self._batch_size, self._seed, self._share = batch_size, seed, validation_share
        self._num_workers, self._pin_memory = num_workers, pin_memory

    def setup(self, stage: str) -> None:
        """Read the file and split it."""
        del stage
        images, classes = read_digits()
        order = torch.randperm(len(classes), generator=torch.Generator().manual_seed(SPLIT_SEED))
        held_out = int(len(classes) * self._share)
        self._validation = (images[order[:held_out]], classes[order[:held_out]])
        self._training = (images[order[held_out:]], classes[order[held_out:]])

    def train_dataloader(self) -> DataLoader[tuple[Tensor, ...]]:
        """Return the endless stream of this rank."""
        return loader_of(
            EndlessBatches(self._training, self._batch_size, self._seed), self._num_workers, self._pin_memory
        )

    def val_dataloader(self) -> DataLoader[tuple[Tensor, ...]]:
        """Return the whole validation set, the same on every rank."""
        return loader_of(WholeSet(self._validation, 512))
