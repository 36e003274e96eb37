"""Train a small CNN on scikit-learn's digits with Lightning: the training that the tools of `peers.py` sweep.

    python train_digits.py --batch-size 32 --precision 32-true --seed 1

It knows nothing of accelsweep. With STEPS_FOLDER set, it notes when each step ended in a file of its own there.
"""

from __future__ import annotations

import argparse
import os
import time
from pathlib import Path
from typing import Any

import lightning.pytorch as pl
import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class Digits(pl.LightningModule):
    """Three stages of convolution, batch norm and ReLU, then pooling and a linear layer."""

    def __init__(self) -> None:
        """Make the layers, for images of 8 by 8 pixels."""
        super().__init__()
        layers: list[nn.Module] = []
        for inputs, outputs, stride in ((1, 32, 1), (32, 64, 2), (64, 128, 2)):
            layers += [nn.Conv2d(inputs, outputs, 3, stride, padding=1, bias=False), nn.BatchNorm2d(outputs), nn.ReLU()]
        self.network = nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(128, 10))

    def training_step(self, batch: tuple[torch.Tensor, torch.Tensor], _batch_idx: int) -> torch.Tensor:
        """Return the cross-entropy of a batch."""
        images, classes = batch
        return nn.functional.cross_entropy(self.network(images), classes)

    def configure_optimizers(self) -> torch.optim.Optimizer:
        """Return the optimiser."""
        return torch.optim.SGD(self.parameters(), lr=0.05, momentum=0.9)


class Notes(pl.Callback):
    """Notes when the first step began and when each step ended, also if the process is ended in the middle."""

    def __init__(self, path: Path) -> None:
        """Open the file."""
        self._file = path.open("w", encoding="utf-8")

    def on_train_batch_start(self, trainer: pl.Trainer, *_: Any) -> None:
        """Note the beginning."""
        if trainer.global_step == 0:
            self._note()

    def on_train_batch_end(self, *_: Any) -> None:
        """Note an end."""
        self._note()

    def _note(self) -> None:
        self._file.write(f"{time.perf_counter()}\n")
        self._file.flush()


def train(batch_size: int, precision: Any, seed: int, steps: int) -> None:
    """Train for so many steps."""
    pl.seed_everything(seed, verbose=False)
    digits = load_digits()
    images = torch.tensor(digits.images, dtype=torch.float32).unsqueeze(1) / 16
    data = TensorDataset(images, torch.tensor(digits.target))
    callbacks = list[pl.Callback]()
    if folder := os.environ.get("STEPS_FOLDER"):
        callbacks.append(Notes(Path(folder, f"{batch_size}_{precision}_{seed}_{os.getpid()}_{time.time_ns()}")))
    trainer = pl.Trainer(
        accelerator="cpu",
        devices=1,
        precision=precision,
        max_steps=steps,
        callbacks=callbacks,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    trainer.fit(Digits(), DataLoader(data, batch_size, shuffle=True, drop_last=True))


def main() -> None:
    """Train as the command line says."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--precision", default="32-true")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--steps", type=int, default=200)
    options = parser.parse_args()
    train(options.batch_size, options.precision, options.seed, options.steps)


if __name__ == "__main__":
    main()
