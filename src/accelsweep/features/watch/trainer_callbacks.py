"""What the callbacks of the two Trainers have in common: they only start and end the comparison."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from accelsweep import reporting
from accelsweep.features.watch.live_rate import LiveRate, LogMetric, active_mlflow_run
from accelsweep.features.watch.records import EVERY_MINUTES, expectation_of


class Watching:
    """Says every few minutes how fast the training is, compared with its setting in a sweep, and why if it is slower.

    The line goes to stderr. Errors while training end the comparison with one warning. In a run of a sweep, nothing is
    compared.
    """

    def __init__(self, sweep: str | Path, setting: str | None = None, every_minutes: float = EVERY_MINUTES) -> None:
        """`sweep` is NAME or `sweeps/NAME`. `setting` is a name, label or values; None finds it from the training.

        Raises InputError if there is no such sweep or setting, or if nothing was measured.
        """
        super().__init__()
        self._expectation = None if reporting.is_measured else expectation_of(sweep, setting, every_minutes)
        self._live: LiveRate | None = None

    def _start(self, **options: Any) -> None:
        self._close()
        if self._expectation is not None:
            self._live = LiveRate(self._expectation, **options)
            self._live.start()

    def _close(self) -> None:
        live, self._live = self._live, None
        if live is not None:
            live.close()


class LightningWatching(Watching):
    """The hooks of Lightning's callbacks. The ratio, `accelsweep/rate_vs_measured`, goes to each MLFlowLogger."""

    def on_train_start(self, trainer: Any, pl_module: Any) -> None:
        """Start watching."""
        del pl_module
        self._start(metric_logger=lambda: _mlflow_loggers(trainer))

    def on_train_end(self, trainer: Any, pl_module: Any) -> None:
        """Say how the whole training compared."""
        del trainer, pl_module
        self._close()

    def on_exception(self, trainer: Any, pl_module: Any, exception: BaseException) -> None:
        """Say how the training compared until it failed or was interrupted."""
        del trainer, pl_module, exception
        self._close()


def _mlflow_loggers(trainer: Any) -> LogMetric | None:
    found = [one for one in trainer.loggers if "MLFlowLogger" in {kind.__name__ for kind in type(one).__mro__}]
    if not found:
        return active_mlflow_run()
    clients = [(logger.experiment, logger.run_id) for logger in found]

    def log(name: str, value: float, step: int) -> None:
        for client, run_id in clients:
            client.log_metric(run_id, name, value, step=step)

    return log
