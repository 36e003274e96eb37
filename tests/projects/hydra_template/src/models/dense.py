"""A small dense network with torchmetrics, as such templates use them."""

import torch
from lightning import LightningModule
from torchmetrics import MaxMetric, MeanMetric
from torchmetrics.classification import MulticlassAccuracy


class DenseModule(LightningModule):
    def __init__(self, hidden: int, lr: float):
        super().__init__()
        self.save_hyperparameters()
        self.net = torch.nn.Sequential(torch.nn.Linear(32, hidden), torch.nn.ReLU(), torch.nn.Linear(hidden, 10))
        self.train_loss, self.val_acc, self.val_acc_best = MeanMetric(), MulticlassAccuracy(10), MaxMetric()

    def training_step(self, batch, batch_idx):
        points, labels = batch
        loss = torch.nn.functional.cross_entropy(self.net(points), labels)
        self.train_loss(loss)
        self.log("train/loss", self.train_loss, on_step=False, on_epoch=True)
        return loss

    def validation_step(self, batch, batch_idx):
        points, labels = batch
        self.val_acc(self.net(points), labels)
        self.log("val/acc", self.val_acc, on_step=False, on_epoch=True, prog_bar=True)

    def on_validation_epoch_end(self):
        self.val_acc_best(self.val_acc.compute())
        self.log("val/acc_best", self.val_acc_best.compute(), sync_dist=True)

    def configure_optimizers(self):
        optimizer = torch.optim.Adam(self.parameters(), self.hparams.lr)
        schedule = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer, mode="max")
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": schedule, "monitor": "val/acc"}}
