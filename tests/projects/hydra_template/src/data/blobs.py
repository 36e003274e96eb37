"""Points around ten centres; the batch size is that of all devices together."""

import torch
from lightning import LightningDataModule
from torch.utils.data import DataLoader, TensorDataset, random_split


class BlobsDataModule(LightningDataModule):
    def __init__(self, samples: int, batch_size: int = 64, num_workers: int = 0):
        super().__init__()
        self.save_hyperparameters(logger=False)
        self.batch_size_per_device = batch_size

    def setup(self, stage=None):
        if self.trainer is not None:
            if self.hparams.batch_size % self.trainer.world_size != 0:
                raise RuntimeError(f"batch size {self.hparams.batch_size} is not divisible by {self.trainer.world_size}")
            self.batch_size_per_device = self.hparams.batch_size // self.trainer.world_size
        generator = torch.Generator().manual_seed(0)
        centres = torch.randn(10, 32, generator=generator)
        labels = torch.randint(0, 10, (self.hparams.samples,), generator=generator)
        points = centres[labels] + 0.5 * torch.randn(self.hparams.samples, 32, generator=generator)
        data = TensorDataset(points, labels)
        self.train_data, self.val_data = random_split(data, [0.8, 0.2], generator=generator)

    def train_dataloader(self):
        return DataLoader(self.train_data, self.batch_size_per_device, shuffle=True, num_workers=self.hparams.num_workers)

    def val_dataloader(self):
        return DataLoader(self.val_data, self.batch_size_per_device, num_workers=self.hparams.num_workers)
