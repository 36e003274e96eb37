"""A callback for Lightning's Trainer that compares a training with what a sweep measured."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from accelsweep.features.watch.live_rate import LiveRate, LogMetric, active_mlflow_run
from accelsweep.features.watch.records import EVERY_MINUTES, expectation_of

if TYPE_CHECKING:
    from lightning.pytorch import Callback
elif "pytorch_lightning" in sys.modules and "lightning.pytorch" not in sys.modules:
    from pytorch_lightning import Callback
else:
    from lightning.pytorch import Callback


class Watch(Callback):
    """Says every few minutes how fast the training is, compared with its setting in a sweep, and why if it is slower.

    The line goes to stderr, and the ratio, `accelsweep/rate_vs_measured`, to each MLFlowLogger. Errors while training
    end the comparison with one warning.
    """

    def __init__(self, sweep: str | Path, setting: str | None = None, every_minutes: float = EVERY_MINUTES) -> None:
        """`sweep` is NAME or `sweeps/NAME`. `setting` is a name, label or values; None finds it from the training.

        Raises InputError if there is no such sweep or setting, or if nothing was measured.
        """
        self._expectation = expectation_of(sweep, setting, every_minutes)
        self._live: LiveRate | None = None

    def on_train_start(self, trainer: Any, pl_module: Any) -> None:
        """Start watching."""
        del pl_module
        self._live = LiveRate(self._expectation, metric_logger=lambda: _mlflow_loggers(trainer))
        self._live.start()

    def on_train_end(self, trainer: Any, pl_module: Any) -> None:
        """Say how the whole training compared."""
        del trainer, pl_module
        self._close()

    def on_exception(self, trainer: Any, pl_module: Any, exception: BaseException) -> None:
        """Say how the training compared until it failed or was interrupted."""
        del trainer, pl_module, exception
        self._close()

    def _close(self) -> None:
        if self._live is not None:
            self._live.close()
            self._live = None


def _mlflow_loggers(trainer: Any) -> LogMetric | None:
    found = [logger for logger in trainer.loggers if type(logger).__name__ == "MLFlowLogger"]
    if not found:
        return active_mlflow_run()
    clients = [(logger.experiment, logger.run_id) for logger in found]

    def log(name: str, value: float, step: int) -> None:
        for client, run_id in clients:
            client.log_metric(run_id, name, value, step=step)

    return log
