"""Workloads whose truth is known: steps and data waits of a given length, to test the measurement.

A step waits by spinning on the monotonic clock. So it takes exactly as long as its schedule says, on any device. It
trains one number, so that every loop can drive it.
"""

from __future__ import annotations

import time
from collections.abc import Iterator

import lightning.pytorch as pl
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, IterableDataset

from accelsweep.workloads.training_stream import make_loader, rank_and_size


def spin(seconds: float) -> None:
    """Keep the processor busy for `seconds` of the monotonic clock."""
    until = time.perf_counter() + seconds
    while time.perf_counter() < until:
        pass


class TimedStep(pl.LightningModule):
    """A module whose training step takes `seconds`, changed as its other arguments say."""

    def __init__(
        self,
        seconds: float = 0.002,
        drift_per_step: float = 0.0,
        slow_every: int = 0,
        slow_factor: float = 1.0,
        slow_warmup_steps: int = 0,
        stalled_rank: int = -1,
        stall_seconds: float = 0.0,
    ) -> None:
        """Say how long each step takes.

        Step i takes `seconds * (1 + drift_per_step * i)`, `slow_factor` times as long if i is a multiple of
        `slow_every` or less than `slow_warmup_steps`, and `stall_seconds` more on rank `stalled_rank`.
        """
        super().__init__()
        self.weight = nn.Parameter(torch.ones(1))
        self._seconds, self._drift = seconds, drift_per_step
        self._slow_every, self._slow_factor, self._slow_warmup = slow_every, slow_factor, slow_warmup_steps
        self._stall = stall_seconds if rank_and_size()[0] == stalled_rank else 0.0
        self._steps = 0

    def seconds_of(self, step: int) -> float:
        """Return how long step number `step` (from 0) takes on this rank."""
        seconds = self._seconds * (1.0 + self._drift * step)
        if step < self._slow_warmup or (self._slow_every and step % self._slow_every == 0):
            seconds *= self._slow_factor
        return seconds + self._stall

    def training_step(self, batch: Tensor, _batch_idx: int) -> Tensor:
        """Spin, then return a loss that the weight decides."""
        spin(self.seconds_of(self._steps))
        self._steps += 1
        return (self.weight * batch.mean()).sum() ** 2

    def validation_step(self, batch: Tensor, _batch_idx: int) -> None:
        """Log the weight as `val_accuracy`."""
        self.log("val_accuracy", self.weight.detach().sum(), batch_size=len(batch), sync_dist=True)


class TimedNetwork(nn.Module):
    """A layer from `features` inputs to `classes` logits, whose call takes `seconds` and no processor.

    So two of them in one process do not disturb each other, like two devices.
    """

    def __init__(self, seconds: float, features: int = 8, classes: int = 4) -> None:
        """`seconds` are those of one call in training or evaluation; a backward pass takes none."""
        super().__init__()
        self.layer = nn.Linear(features, classes)
        self._seconds = seconds

    def forward(self, inputs: Tensor) -> Tensor:
        """Sleep, then answer `inputs` (samples, features)."""
        time.sleep(self._seconds)
        answers: Tensor = self.layer(inputs)
        return answers


class _Waiting(IterableDataset[Tensor]):
    def __init__(self, batch_size: int, seconds: float, batches: int | None) -> None:
        self._batch, self._seconds, self._batches = torch.full((batch_size, 1), 0.1), seconds, batches

    def __iter__(self) -> Iterator[Tensor]:
        given = 0
        while self._batches is None or given < self._batches:
            spin(self._seconds)
            yield self._batch.clone()
            given += 1


class TimedData(pl.LightningDataModule):
    """Batches of shape (batch_size, 1) that each take `wait_seconds` to make; endless, or `batches` an epoch."""

    def __init__(self, batch_size: int, wait_seconds: float = 0.0, batches: int | None = None) -> None:
        """`batch_size` is per rank."""
        super().__init__()
        self._batch_size, self._seconds, self._batches = batch_size, wait_seconds, batches

    def train_dataloader(self) -> DataLoader[Tensor]:
        """Return the training batches."""
        return make_loader(_Waiting(self._batch_size, self._seconds, self._batches))

    def val_dataloader(self) -> DataLoader[Tensor]:
        """Return one batch, at once."""
        return make_loader(_Waiting(self._batch_size, 0.0, 1))
