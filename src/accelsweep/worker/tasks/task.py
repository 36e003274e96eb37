"""The interface of a task, and the choice of the config's task."""

from __future__ import annotations

from collections.abc import Collection
from typing import Protocol

from accelsweep.worker.loops.loop import Driver
from accelsweep.worker.measurement import Account, Measurement
from accelsweep.worker.rank_setup import RankPlace
from accelsweep.worker.run_spec import ErrorKind, RunSpec


class Task(Protocol):
    """One run's task, on one rank; its methods are called once each, in this order."""

    @property
    def rate_survives(self) -> Collection[ErrorKind]:
        """The failures of `after` that leave a measured run, because the rate is worth having without the rest."""

    def driver(self) -> Driver:
        """Return the driver of the window's steps. Raises Unsupported where this machine cannot run it."""

    def closed(self, measured: Measurement, account: Account) -> None:
        """Add the driver's facts to the account, now that the window has closed, and let go of the driver.

        What `after` will measure is added, too, as `not_reached`.
        """

    def after(self, account: Account) -> None:
        """Measure slow things, now that the window is closed. Raises the errors of the user's code."""


def task_of(spec: RunSpec, place: RankPlace) -> Task:
    """Return the task that the config asks for."""
    name = spec.config.task
    if name == "time_to_accuracy":
        from accelsweep.worker.tasks.train import TimeToAccuracy

        return TimeToAccuracy(spec, place)
    if spec.config.work == "serving":
        from accelsweep.rank.tasks.under_load import UnderLoad

        return UnderLoad(spec, place)
    if name == "inference" and spec.config.serving is not None and spec.config.serving.generator == "loadgen":
        from accelsweep.rank.tasks.asked_twice import AskedTwice

        return AskedTwice(spec, place)
    if name == "inference":
        from accelsweep.worker.tasks.inference import Inference

        return Inference(spec, place)
    if name == "kernels":
        from accelsweep.rank.tasks.kernels import Kernels

        return Kernels(spec, place)
    if name == "memory_frontier":
        from accelsweep.worker.tasks.train import MemoryFrontier

        return MemoryFrontier(spec, place)
    if name == "boosting":
        from accelsweep.rank.tasks.boosting import Boosting

        return Boosting(spec, place)
    from accelsweep.worker.tasks.train import TrainThroughput

    return TrainThroughput(spec, place)
