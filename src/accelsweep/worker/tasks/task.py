"""The interface of a task, and the lookup of the config's task."""

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
    """A run's task on one rank. Its methods are called once each, in this order."""

    @property
    def tolerated_failures(self) -> Collection[ErrorKind]:
        """The failures of `after_window` that leave a measured run, because the rate is useful without the rest."""

    def driver(self) -> Driver:
        """Return the driver of the window's steps. Raises Unsupported if this machine cannot run it."""

    def window_closed(self, measured: Measurement, report: RankReport) -> None:
        """Add the driver's results to the report, and what `after_window` will measure as `not_reached`.

        The task must then drop its reference to the driver, so that its memory is freed.
        """

    def after_window(self, report: RankReport) -> None:
        """Measure what takes long, in phases of its own. Raises the errors of the user's code."""


def make_task(spec: RunSpec, place: RankPlace) -> Task:
    """Return the task that the config asks for."""
    task: Task = registry.load(task_of(spec.config.task, spec.config.raw).target)(spec, place)
    return task
