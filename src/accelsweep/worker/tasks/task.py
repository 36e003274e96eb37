"""The task interface, and the lookup of the task selected by the config."""

from __future__ import annotations

from collections.abc import Collection
from typing import Protocol

from accelsweep import registry
from accelsweep.results import ErrorKind
from accelsweep.tasks import task_of
from accelsweep.worker.loops.loop import Driver
from accelsweep.worker.rank_measurement import Measurement, RankReport
from accelsweep.worker.rank_setup import RankPlace
from accelsweep.worker.run_spec import RunSpec


class Task(Protocol):
    """A run's task on one rank. Each method is called once, in this order."""

    @property
    def tolerated_failures(self) -> Collection[ErrorKind]:
        """Failures in `after_window` that do not invalidate the run, because its rate is useful on its own."""

    def driver(self) -> Driver:
        """Return the driver for the window's steps. Raises Unsupported if this machine cannot run it."""

    def window_closed(self, measured: Measurement, report: RankReport) -> None:
        """Add the driver's results to the report, and mark metrics measured in `after_window` as `not_reached`.

        The task must then drop its reference to the driver, so that the driver's memory can be freed.
        """

    def after_window(self, report: RankReport) -> None:
        """Measure everything that takes a long time, in separate phases. Raises errors from the user's code."""


def make_task(spec: RunSpec, place: RankPlace) -> Task:
    """Return the task selected by the config."""
    task: Task = registry.load(task_of(spec.config.task, spec.config.raw).target)(spec, place)
    return task
