"""A model and its data to begin with: two spirals, and a network that tells them apart. Change anything here.

`accelsweep run experiment=mine` measures it; conf/experiment/mine.yaml says what is swept. Nothing of accelsweep is imported:
these are the classes that PyTorch Lightning's users write anyway.
"""

import lightning.pytorch as pl
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class MyModule(pl.LightningModule):
    """Any LightningModule. Its arguments are keys of `model:` in mine.yaml, and each of them can be an axis."""

    def __init__(self, width: int = 64, depth: int = 3) -> None:
        """`depth` hidden layers of `width` units."""
        super().__init__()
        sizes = [2] + [width] * depth
        hidden = [layer for pair in zip(sizes, sizes[1:]) for layer in (nn.Linear(*pair), nn.ReLU())]
        self.network = nn.Sequential(*hidden, nn.Linear(width, 2))

    def training_step(self, batch, batch_idx):
        """Return the loss of a batch. Return it; do not log it at every step: that costs more than this network."""
        points, spirals = batch
        return nn.functional.cross_entropy(self.network(points), spirals)

    def validation_step(self, batch, batch_idx):
        """Log what `measure.quality_metric` names: the report then says what a faster setting costs in quality."""
        points, spirals = batch
        right = (self.network(points).argmax(dim=1) == spirals).float().mean()
        self.log("val_accuracy", right, batch_size=len(spirals), sync_dist=True)

    # No configure_optimizers: conf/optimizer/ decides (optimizer=adamw optimizer.lr=0.01), so it can be swept too.
    # Where you define one, it is used, and `optimizer` has no effect.


class MyData(pl.LightningDataModule):
    """Any LightningDataModule. It is given `batch_size` (of one device), and `seed` because it names that."""

    def __init__(self, batch_size: int, seed: int = 0, samples: int = 500_000, num_workers: int = 0) -> None:
        """`samples` is large so that no pass ends while the rate is measured, which would cast a doubt on it."""
        super().__init__()
        self.batch_size, self.seed, self.samples, self.num_workers = batch_size, seed, samples, num_workers

    def prepare_data(self) -> None:
        """Download here: it is called once, before anything is measured. These spirals need no download."""

    def setup(self, stage: str) -> None:
        """Make the data; every process does this for itself."""
        self.train = spirals(self.samples, seed=self.seed)
        self.validation = spirals(2_000, seed=12_345)

    def train_dataloader(self):
        """Return a loader that uses `batch_size`, and drops the short batch at the end."""
        return DataLoader(
            self.train,
            batch_size=self.batch_size,
            shuffle=True,
            drop_last=True,
            num_workers=self.num_workers,
            persistent_workers=self.num_workers > 0,
        )

    def val_dataloader(self):
        """Return the validation set; leave the method out where there is none."""
        return DataLoader(self.validation, batch_size=500)


def spirals(samples: int, seed: int) -> TensorDataset:
    """Return points (samples, 2) on two noisy spirals, and which of the two each belongs to (samples,)."""
    chance = torch.Generator().manual_seed(seed)
    which = torch.randint(2, (samples,), generator=chance)
    turn = torch.rand(samples, generator=chance)
    angle = 6.0 * turn + torch.pi * which
    points = torch.stack((turn * angle.cos(), turn * angle.sin()), dim=1)
    return TensorDataset(points + 0.02 * torch.randn(samples, 2, generator=chance), which)
