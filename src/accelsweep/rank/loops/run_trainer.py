"""Lightning's Trainer for a run: it has the usual answers for modules, and a module's callbacks do not end it early.

The module's logged values go into the record, so its logger takes everything and keeps nothing. A schedule that asks
for the length of training gets the most that a run may take. Callbacks that would keep checkpoints or stop training are
left out.
"""

from __future__ import annotations

import sys
from typing import Any

import lightning.pytorch as pl
from lightning.pytorch.callbacks import Checkpoint, EarlyStopping, Timer
from lightning.pytorch.loggers.logger import DummyLogger

from accelsweep.core.cells.config import CellConfig

LEFT_OUT = (Checkpoint, EarlyStopping, Timer)
"""Callbacks of a module's own that a run leaves out: it keeps no checkpoints and ends with its window."""


class RunTrainer(pl.Trainer):
    """A Trainer without an end of its own; `most_steps` is the number of steps that its run may take."""

    def __init__(self, most_steps: int, **settings: Any) -> None:
        """`settings` are the Trainer's. Nothing is sent to the logger unless they say how often."""
        self._most_steps = most_steps
        super().__init__(logger=DummyLogger(), **{"log_every_n_steps": 0, **settings})

    @property
    def estimated_stepping_batches(self) -> int:
        """The most optimiser steps that training may take; it has no planned end that a schedule could use."""
        return self._most_steps


def most_steps(config: CellConfig) -> int:
    """Return how many steps a run with this config may take in one phase at most."""
    measure = config.measure
    samples = max(measure.quality_samples or 0, measure.max_samples or 0)
    return max(measure.warmup_steps + measure.max_steps, -(-samples // config.samples_per_step)) + 1


def leave_out_endings(module: pl.LightningModule) -> None:
    """Make `configure_callbacks` of `module` give all of its callbacks but `LEFT_OUT`, and say so."""
    if type(module).configure_callbacks is pl.LightningModule.configure_callbacks:
        return
    given = module.configure_callbacks

    def configure_callbacks() -> list[pl.Callback]:
        found = given()
        callbacks = [found] if isinstance(found, pl.Callback) else list(found)
        for callback in callbacks:
            if isinstance(callback, LEFT_OUT):
                sys.stderr.write(f"accelsweep: left out {type(callback).__name__} of {type(module).__name__}\n")
        return [callback for callback in callbacks if not isinstance(callback, LEFT_OUT)]

    module.configure_callbacks = configure_callbacks  # type: ignore[method-assign]
