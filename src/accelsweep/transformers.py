"""A callback for the Trainer of Hugging Face's transformers that compares a training with what a sweep measured."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from transformers import TrainerCallback

from accelsweep.features.watch.live_rate import LiveRate
from accelsweep.features.watch.records import EVERY_MINUTES, expectation_of


class Watch(TrainerCallback):
    """Says every few minutes how fast the training is, compared with its setting in a sweep, and why if it is slower.

    The line goes to stderr, and the ratio, `accelsweep/rate_vs_measured`, to the MLflow run that is open. Errors while
    training end the comparison with one warning.
    """

    def __init__(self, sweep: str | Path, setting: str | None = None, every_minutes: float = EVERY_MINUTES) -> None:
        """`sweep` is NAME or `sweeps/NAME`. `setting` is a name, label or values; None finds it from the training.

        Raises InputError if there is no such sweep or setting, or if nothing was measured.
        """
        self._expectation = expectation_of(sweep, setting, every_minutes)
        self._live: LiveRate | None = None

    def on_train_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Start watching."""
        del args, state, control
        self._live = LiveRate(self._expectation)
        self._live.start()

    def on_train_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Say how the whole training compared."""
        del args, state, control
        if self._live is not None:
            self._live.close()
