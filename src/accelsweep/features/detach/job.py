"""The detached driver itself: it does what its order says, as the command would have, and notes how that ended.

A Slurm job is told some minutes before its time is up. Its driver then lets its jobs run on, and submits the job that
goes on with the order. `python -m` this module is started with the sweep's folder.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, TypeVar

from pydantic import Field

from accelsweep.cli.typer_app import exit_code
from accelsweep.config.site import Site
from accelsweep.driver.auto_batch_size import announce_searches, plan_or_searches
from accelsweep.driver.console import say
from accelsweep.driver.job_queue import cancel_jobs, list_jobs
from accelsweep.driver.plan_preview import requested_plan
from accelsweep.driver.request import Request
from accelsweep.driver.run_sweep import (
    Listeners,
    check_and_show_plan,
    check_request,
    run_sweep,
)
from accelsweep.errors import EXIT_INCOMPLETE, EXIT_INTERRUPTED, EXIT_OK, AccelsweepError, DamagedFile
from accelsweep.features.detach.places import DriverExit, DriverJob, StartedDriver, name_in, whole_nodes
from accelsweep.json_documents import Document
from accelsweep.records.file_lock import live_lock
from accelsweep.records.layout import SweepFolder, sweep_parser
from accelsweep.records.plan import Manifest
from accelsweep.records.run_record import now
from accelsweep.schedulers.protocol import Job
from accelsweep.schedulers.slurm import SlurmEngine
from accelsweep.signals import DriverEvicted, ignore_eviction, interrupt_on_termination, raise_on_eviction
from accelsweep.significant_digits import count_of

if TYPE_CHECKING:
    from accelsweep.planning.plan import Plan


# The command of a driver in the background, with everything that the terminal has decided.


@dataclass(frozen=True)
class BackgroundCommand:
    """A command before its driver starts in the background: arguments, site, and the sweep that the driver locks.

    `plan` is what the driver measures first. Claims have none: their driver plans each of their sweeps by itself.
    """

    request: Request
    site: Site
    sweep: str
    plan: Plan | None = None

    @classmethod
    def of(cls, home: Path, request: Request) -> BackgroundCommand:
        """Return what is to be done, planned and shown, so that faults are told at once. Raises InputError for them."""
        check_request(request)
        Listeners(request)
        if request.extension:
            request = request.extension.resolved(home, request)
            if request.extension and (folder := request.extension.folder):
                return cls(request, Site(name="local"), folder)
        plan, sweep = _planned(home, request)
        if request.extension:
            request = replace(request, extension=request.extension.pinned(plan))
        return cls(request, plan.manifest.site, sweep, plan)

    @property
    def first_plan(self) -> Plan | None:
        """The plan of the sweep itself; None where searches are measured first, and for claims."""
        return self.plan if self.plan is not None and self.plan.manifest.sweep == self.sweep else None

    @property
    def sweeps(self) -> tuple[str, ...]:
        """The sweeps that are planned, the first of them that of the driver."""
        return tuple({self.sweep: None, self.plan.manifest.sweep: None}) if self.plan else ()


def _planned(home: Path, request: Request) -> tuple[Plan, str]:
    """Return what the driver measures first, and the name of the sweep that was asked for. Both are shown."""
    plan = plan_or_searches(home, partial(requested_plan, home, request))
    if isinstance(plan, tuple):
        unsearched, plan = plan
        announce_searches(unsearched, plan)
        sweep = unsearched.sweep
    else:
        sweep = plan.manifest.sweep
    check_and_show_plan(home, request, plan, request.budget_seconds)
    return plan, sweep


def do(home: Path, request: Request) -> int:
    """Do what the command does in a terminal; return its exit code."""
    return request.extension.run(home, request) if request.extension else run_sweep(home, request).code


# The order to a detached driver, in a file for its owner's eyes only.


class DriverOrder(Document):
    """The arguments of a command. `site` is where the sweep's jobs go, and where on Slurm its drivers do.

    `sweeps` are those that the driver runs. `revision` is the plan in which `--add-repeats` has done its part.
    `starts` counts the drivers that took the order up. `secrets` are variables of the user's that its job does not get
    from Slurm, which would store them, and show them to its staff.
    """

    kind: ClassVar[str] = "order"
    mode: ClassVar[int] = 0o600

    request: Request
    site: Site
    sweeps: tuple[str, ...]
    revision: int
    starts: int = 0
    secrets: dict[str, str] = Field(default_factory=dict)

    def begun(self, folder: SweepFolder) -> DriverOrder:
        """Return the order as the next driver takes it up: what is in the plan already is not asked for again."""
        request = replace(self.request, add_repeats=0) if self._in_plan(folder) else self.request
        return self.model_copy(update={"request": request, "starts": self.starts + 1})

    def _in_plan(self, folder: SweepFolder) -> bool:
        try:
            return Manifest.read(folder.manifest).revision >= self.revision
        except (FileNotFoundError, DamagedFile):
            return False

    def later(self, began: float) -> DriverOrder:
        """Return the order for another driver, after one that `began` then, on the monotonic clock."""
        budget = self.request.budget_seconds
        if budget is None:
            return self
        left = max(1.0, budget - (time.monotonic() - began))
        return self.model_copy(update={"request": replace(self.request, time_budget=f"{left:.0f}s")})


MOST_STARTS = 100
"""A chain of drivers has an end, however slowly it gets on."""

_HOLD_SECONDS = 150.0

_LOOK_SECONDS = 2.0

_PART_OF_NOTICE = 0.5
"""This share of the time that a driver has left may go by without an answer of Slurm."""

_Answer = TypeVar("_Answer")


def carry_on(folder: SweepFolder) -> int:
    """Do what the order of this sweep says; return the exit code."""
    order, began = DriverOrder.read(folder.driver_file("order")).begun(folder), time.monotonic()
    order.write(folder.driver_file("order"))
    os.environ.update(order.secrets)
    if order.site.scheduler == "slurm":
        raise_on_eviction(lambda: DriverJob().cancelled(os.environ.get("SLURM_JOB_ID", "")))
    before = _stamps(folder, order)
    code, left = EXIT_INCOMPLETE, False
    try:
        code = exit_code(lambda: _done(folder, order))
        ignore_eviction()
        if code == EXIT_INTERRUPTED:
            _cancel_jobs_of_chain(folder, order)
    except DriverEvicted as leaving:
        if leaving.resubmit:
            moved = _stamps(folder, order) != before
            left = exit_code(lambda: _handed_on(folder, order.later(began), moved=moved)) == EXIT_OK
        else:  # preempted: Slurm may start the same job again, which needs the order
            say("the job of this driver is being ended: the sweep's jobs run on, and the same command resumes")
            left = True
    finally:
        if not left:
            DriverExit(code=code).write(folder.driver_file("ended"))
            folder.driver_file("order").unlink(missing_ok=True)
    return EXIT_OK if left else code


def _done(folder: SweepFolder, order: DriverOrder) -> int:

    _let_the_last_one_go(folder, order)
    return do(folder.home, order.request)


def _cancel_jobs_of_chain(folder: SweepFolder, order: DriverOrder) -> None:
    """Cancel what the drivers before this one left: an interrupted driver may have waited for it."""
    if order.starts > 1:
        for sweep in order.sweeps:
            cancel_jobs(SweepFolder(folder.home, sweep), SlurmEngine(order.site), say)


def _let_the_last_one_go(folder: SweepFolder, order: DriverOrder) -> None:
    """Wait for the hold of the driver before this one, where that was killed on another node: it goes silent soon."""
    deadline = time.monotonic() + _HOLD_SECONDS
    while order.starts > 1 and live_lock(folder.driver_file("claim")) is not None and time.monotonic() < deadline:
        time.sleep(_LOOK_SECONDS)


def _handed_on(folder: SweepFolder, order: DriverOrder, *, moved: bool) -> int:
    """Submit the job of the next driver, to begin when this one has ended.

    Raises AccelsweepError where none is due, or Slurm does not answer in time; notices tell of either.
    """
    folders = [SweepFolder(folder.home, sweep) for sweep in order.sweeps]
    plans = [Manifest.read(one.manifest) for one in folders if one.manifest.is_file()]
    blocks = [block.resources for plan in plans for block in plan.blocks]
    engine = SlurmEngine(order.site)
    place = DriverJob(
        order.site.slurm,
        order.request.nodes,
        whole_nodes(order.site, blocks),
    )
    name = name_in(place, folder)
    deadline = time.monotonic() + _PART_OF_NOTICE * place.notice_seconds
    with Listeners(order.request, folder).report_failure():
        left = _answered(lambda: [job for one in folders for job in list_jobs(one, engine)], deadline)
        able = _answered(lambda: [job for job in left if not _in_vain(engine, job)], deadline)
        if why := last_of_chain(order.starts, moved=moved, waiting=len(able)):
            vain = [told for job in left if not able and (told := engine.advice(job.reason)) is not None]
            again = vain[0] if vain else "The same command resumes"
            raise AccelsweepError(f"the time of this driver is up, and {why}. {again}")
        with contextlib.suppress(AccelsweepError):  # it finds nodes to stay away from; `start` tells of a refusal
            place.check(folder, name)
        order.write(folder.driver_file("order"))
        command = (sys.executable, "-P", "-m", "accelsweep.features.detach.job", str(folder.root))
        after = os.environ.get("SLURM_JOB_ID")
        number = _answered(lambda: place.start(folder, command, name, after=after), deadline)
    StartedDriver(place="slurm", name=number, host=socket.gethostname(), since=now()).write(
        folder.driver_file("handed")
    )
    say(f"the time of this driver is up: job {number} takes over, with {count_of(len(left), 'job')} of the sweep")
    return EXIT_OK


def _in_vain(engine: SlurmEngine, job: Job) -> bool:
    return engine.waits(job) and engine.never_starts(job.reason)


def _answered(ask: Callable[[], _Answer], deadline: float) -> _Answer:
    """Return what Slurm answers, which is asked again until the deadline, on the monotonic clock."""
    while True:
        try:
            return ask()
        except AccelsweepError as error:
            if time.monotonic() >= deadline:
                raise
            say(f"{error}; asking again")
        time.sleep(_LOOK_SECONDS)


def last_of_chain(starts: int, *, moved: bool, waiting: int) -> str | None:
    """Return why no further driver follows one that ended at its time limit, None where one does."""
    if starts >= MOST_STARTS:
        return f"it was number {starts}: no further one is submitted"
    if not moved and not waiting:
        return "no run ended in all that time, and no job is left that can start: no further one is submitted"
    return None


def _stamps(folder: SweepFolder, order: DriverOrder) -> list[tuple[str, int]]:
    """Return what differs once a run of the sweeps has ended."""
    folders = [SweepFolder(folder.home, sweep) for sweep in order.sweeps]
    return [(str(path), path.stat().st_mtime_ns) for one in folders for path in one.latest_records()]


def main() -> None:
    """Carry the order on that lies in the folder which the command line names."""
    os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")
    signal.signal(signal.SIGINT, signal.default_int_handler)  # whatever started this process
    interrupt_on_termination()
    root = sweep_parser("features.detach.job", "Do what the order in a sweep's folder says.").parse_args().sweep
    sys.exit(exit_code(lambda: carry_on(SweepFolder.of(root))))


if __name__ == "__main__":
    main()
