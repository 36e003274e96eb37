"""The LightningModule around our image classifiers: cross-entropy, and accuracy in the validation loop.

It logs nothing while it trains, because `self.log` in a training step costs more than a small model's whole forward
pass, and it leaves `configure_optimizers` to the config's `optimizer`.
"""

from __future__ import annotations

import lightning.pytorch as pl
from torch import Tensor, nn
from torch.nn import functional


class ImageClassifier(pl.LightningModule):
    """A network from images (samples, channels, height, width) to logits (samples, classes), with its loss."""

    def __init__(self, network: nn.Module) -> None:
        """`network` does the work."""
        super().__init__()
        self.network = network

    def forward(self, images: Tensor) -> Tensor:
        """Return logits (samples, classes) for `images` (samples, channels, height, width)."""
        logits: Tensor = self.network(images)
        return logits

    def training_step(self, batch: tuple[Tensor, Tensor], _batch_idx: int) -> Tensor:
        """Return the mean cross-entropy of a batch (images, classes)."""
        images, classes = batch
        return functional.cross_entropy(self(images), classes)

    def validation_step(self, batch: tuple[Tensor, Tensor], _batch_idx: int) -> None:
        """Log `val_loss` and `val_accuracy` (the share of right answers), averaged over all samples of all ranks."""
        images, classes = batch
        logits = self(images)
        size = len(classes)
        self.log("val_loss", functional.cross_entropy(logits, classes), batch_size=size, sync_dist=True)
        right = (logits.argmax(dim=1) == classes).float().mean()
        self.log("val_accuracy", right, batch_size=size, sync_dist=True)
