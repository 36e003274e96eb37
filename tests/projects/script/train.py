"""A script that builds its Trainer in code and takes two options."""

import argparse

import torch
from lightning.pytorch import LightningModule, Trainer, seed_everything
from lightning.pytorch.callbacks import ModelCheckpoint
from torch.utils.data import DataLoader, TensorDataset


class Net(LightningModule):
    def __init__(self, hidden, steps=None):
        super().__init__()
        self.net = torch.nn.Sequential(torch.nn.Linear(32, hidden), torch.nn.ReLU(), torch.nn.Linear(hidden, 10))

    def training_step(self, batch, batch_idx):
        points, labels = batch
        loss = torch.nn.functional.cross_entropy(self.net(points), labels)
        self.log("train_loss", loss)
        return loss

    def validation_step(self, batch, batch_idx):
        points, labels = batch
        self.log("val_acc", (self.net(points).argmax(1) == labels).float().mean())

    def configure_optimizers(self):
        optimizer = torch.optim.Adam(self.parameters(), 1e-3)
        steps = self.trainer.estimated_stepping_batches
        schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 1e-2, total_steps=steps)
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": schedule, "interval": "step"}}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--hidden", type=int, default=16)
    parser.add_argument("--epochs", type=int, default=1)
    options = parser.parse_args()
    seed_everything(7)
    labels = torch.randint(0, 10, (2000,))
    points = torch.nn.functional.one_hot(labels, 32) + 0.3 * torch.randn(2000, 32)
    data = TensorDataset(points, labels)
    trainer = Trainer(max_epochs=options.epochs, callbacks=[ModelCheckpoint(monitor="val_acc", mode="max")])
    trainer.fit(Net(options.hidden), DataLoader(data, options.batch_size, shuffle=True), DataLoader(data, 100))
    print("trained to the end")


if __name__ == "__main__":
    main()
