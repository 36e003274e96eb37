"""Calibrated workloads: their steps and data waits have known durations, against which measurements can be checked.

A step busy-waits on the monotonic clock, so its duration is exact on any device. The module trains a single weight, so
that every loop can run it.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from itertools import count

import lightning.pytorch as pl
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, IterableDataset

from accelsweep.workloads.training_stream import make_loader, rank_and_size


def spin(seconds: float) -> None:
    """Busy-wait for `seconds` on the monotonic clock."""
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        pass


class TimedStep(pl.LightningModule):
    """A module whose training step takes `seconds`, with optional drift, slow steps and stalls."""

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
        """Set the step time to `seconds * (1 + drift_per_step * i)` for step i.

        The step time is multiplied by `slow_factor` if i is a multiple of `slow_every` or less than
        `slow_warmup_steps`. On rank `stalled_rank`, every step takes `stall_seconds` longer.
        """
        super().__init__()
        self.weight = nn.Parameter(torch.ones(1))
        self._seconds, self._drift = seconds, drift_per_step
        self._slow_every, self._slow_factor, self._slow_warmup = slow_every, slow_factor, slow_warmup_steps
        self._stall = stall_seconds if rank_and_size()[0] == stalled_rank else 0.0
        self._steps = 0

    def seconds_of(self, step: int) -> float:
        """Return the duration in seconds of step `step` (zero-based) on this rank."""
        seconds = self._seconds * (1.0 + self._drift * step)
        if step < self._slow_warmup or (self._slow_every and step % self._slow_every == 0):
            seconds *= self._slow_factor
        return seconds + self._stall

    def training_step(self, batch: Tensor, _batch_idx: int) -> Tensor:
        """Busy-wait, then return a loss that depends on the weight."""
        spin(self.seconds_of(self._steps))
        self._steps += 1
        return (self.weight * batch.mean()).sum() ** 2

    def validation_step(self, batch: Tensor, _batch_idx: int) -> None:
        """Log the weight as `val_accuracy`."""
        self.log("val_accuracy", self.weight.detach().sum(), batch_size=len(batch), sync_dist=True)


class TimedNetwork(nn.Module):
    """A layer that maps `features` inputs to `classes` logits and sleeps for `seconds` per call.

    Sleeping does not use the CPU, so two such layers in one process do not slow each other down, just as if they ran on
    separate devices.
    """

    def __init__(self, seconds: float, features: int = 8, classes: int = 4) -> None:
        """`seconds` is the duration of a forward pass; a backward pass takes no time."""
        super().__init__()
        self.layer = nn.Linear(features, classes)
        self._seconds = seconds

    def forward(self, inputs: Tensor) -> Tensor:
        """Sleep, then return the logits of `inputs` (samples, features)."""
        time.sleep(self._seconds)
        logits: Tensor = self.layer(inputs)
        return logits


class _TimedBatches(IterableDataset[Tensor]):
    def __init__(self, batch_size: int, seconds: float, batches: int | None) -> None:
        self._batch, self._seconds, self._batches = torch.full((batch_size, 1), 0.1), seconds, batches

    def __iter__(self) -> Iterator[Tensor]:
        for _ in count() if self._batches is None else range(self._batches):
            spin(self._seconds)
            yield self._batch.clone()


class TimedData(pl.LightningDataModule):
    """Batches of shape (batch_size, 1), each available after `wait_seconds`; endless, or `batches` per epoch."""

    def __init__(self, batch_size: int, wait_seconds: float = 0.0, batches: int | None = None) -> None:
        """`batch_size` is per rank."""
        super().__init__()
        self._batch_size, self._seconds, self._batches = batch_size, wait_seconds, batches

    def train_dataloader(self) -> DataLoader[Tensor]:
        """Return the training loader."""
        return make_loader(_TimedBatches(self._batch_size, self._seconds, self._batches))

    def val_dataloader(self) -> DataLoader[Tensor]:
        """Return a loader that yields a single batch without delay."""
        return make_loader(_TimedBatches(self._batch_size, 0.0, 1))
