"""A LightningCLI with its classes given in code; the batch size is that of each device."""

import torch
from lightning.pytorch import LightningDataModule, LightningModule
from lightning.pytorch.cli import LightningCLI
from torch.utils.data import DataLoader, TensorDataset


class Net(LightningModule):
    def __init__(self, hidden: int = 32, lr: float = 0.01, num_classes: int = 10):
        super().__init__()
        self.save_hyperparameters()
        self.net = torch.nn.Sequential(torch.nn.Linear(32, hidden), torch.nn.ReLU(), torch.nn.Linear(hidden, num_classes))

    def training_step(self, batch, batch_idx):
        points, labels = batch
        return torch.nn.functional.cross_entropy(self.net(points), labels)

    def validation_step(self, batch, batch_idx):
        points, labels = batch
        self.log("val_acc", (self.net(points).argmax(1) == labels).float().mean())

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), self.hparams.lr)


class Blobs(LightningDataModule):
    def __init__(self, batch_size: int = 32, samples: int = 2000):
        super().__init__()
        self.save_hyperparameters()
        self.num_classes = 10

    def _loader(self, seed):
        generator = torch.Generator().manual_seed(seed)
        labels = torch.randint(0, 10, (self.hparams.samples,), generator=generator)
        points = torch.nn.functional.one_hot(labels, 32) + 0.3 * torch.randn(self.hparams.samples, 32, generator=generator)
        return DataLoader(TensorDataset(points, labels), self.hparams.batch_size, shuffle=seed == 0)

    def train_dataloader(self):
        return self._loader(0)

    def val_dataloader(self):
        return self._loader(1)


class LinkedCLI(LightningCLI):
    def add_arguments_to_parser(self, parser):
        parser.link_arguments("data.num_classes", "model.num_classes", apply_on="instantiate")


if __name__ == "__main__":
    LinkedCLI(Net, Blobs)
