"""The interface of a task, and the choice of the config's task."""

from __future__ import annotations

from collections.abc import Collection
from typing import Protocol

from accelsweep import registry
from accelsweep.results import ErrorKind
from accelsweep.tasks import task_of
from accelsweep.worker.loops.loop import Driver
from accelsweep.worker.measurement import Account, Measurement
from accelsweep.worker.rank_setup import RankPlace
from accelsweep.worker.run_spec import RunSpec


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


def make_task(spec: RunSpec, place: RankPlace) -> Task:
    """Return the task that the config asks for."""
    task: Task = registry.load(task_of(spec.config.task, spec.config.raw).target)(spec, place)
    return task
