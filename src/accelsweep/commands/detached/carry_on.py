"""The detached head itself: it does what its order says, as the command would have, and notes how that ended.

A Slurm job is told some minutes before its time is up. Its head then lets its jobs run on, and submits the job that
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
from typing import TypeVar

from accelsweep.cli.typer_app import exit_code
from accelsweep.commands.detached.order import HeadOrder
from accelsweep.drive.detached.handed import Handed, HeadEnd
from accelsweep.drive.detached.places import name_in, whole_nodes
from accelsweep.drive.detached.slurm_job import HeadJob
from accelsweep.drive.following.delivery import Target
from accelsweep.drive.following.notices import Notices
from accelsweep.driver.console import say, warn
from accelsweep.driver.job_queue import cancel_jobs, jobs_of
from accelsweep.errors import EXIT_INCOMPLETE, EXIT_INTERRUPTED, EXIT_OK, AccelsweepError
from accelsweep.records.file_lock import living_hold
from accelsweep.records.layout import SweepFolder, sweep_parser
from accelsweep.records.plan import Manifest
from accelsweep.records.run_record import now
from accelsweep.schedulers.protocol import Job
from accelsweep.schedulers.slurm import SlurmEngine
from accelsweep.signals import DriverEvicted, ignore_eviction, interrupt_on_termination, raise_on_eviction
from accelsweep.significant_digits import count_of

MOST_STARTS = 100
"""A chain of heads has an end, however slowly it gets on."""

_HOLD_SECONDS = 150.0
_LOOK_SECONDS = 2.0
_PART_OF_NOTICE = 0.5
"""This share of the time that a head has left may go by without an answer of Slurm."""

_Answer = TypeVar("_Answer")


def carry_on(folder: SweepFolder) -> int:
    """Do what the order of this sweep says; return the exit code."""
    order, began = HeadOrder.read(folder.of_head("order")).begun(folder), time.monotonic()
    order.write(folder.of_head("order"))
    os.environ.update(order.secrets)
    if order.site.scheduler == "slurm":
        raise_on_eviction(lambda: HeadJob().cancelled(os.environ.get("SLURM_JOB_ID", "")))
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
            say("the job of this head is being ended: the sweep's jobs run on, and the same command goes on")
            left = True
    finally:
        if not left:
            HeadEnd(code=code).write(folder.of_head("ended"))
            folder.of_head("order").unlink(missing_ok=True)
    return EXIT_OK if left else code


def _done(folder: SweepFolder, order: HeadOrder) -> int:
    from accelsweep.commands.detached.errand import do

    _let_the_last_one_go(folder, order)
    return do(folder.home, order.request)


def _cancel_jobs_of_chain(folder: SweepFolder, order: HeadOrder) -> None:
    """Cancel what the heads before this one left: an interrupted head may have waited for it."""
    if order.starts > 1:
        for sweep in order.sweeps:
            cancel_jobs(SweepFolder(folder.home, sweep), SlurmEngine(order.site), say)


def _let_the_last_one_go(folder: SweepFolder, order: HeadOrder) -> None:
    """Wait for the hold of the head before this one, where that was killed on another node: it goes silent soon."""
    deadline = time.monotonic() + _HOLD_SECONDS
    while order.starts > 1 and living_hold(folder.of_head("claim")) is not None and time.monotonic() < deadline:
        time.sleep(_LOOK_SECONDS)


def _handed_on(folder: SweepFolder, order: HeadOrder, *, moved: bool) -> int:
    """Submit the job of the next head, to begin when this one has ended.

    Raises AccelsweepError where none is due, or Slurm does not answer in time; notices tell of either.
    """
    folders = [SweepFolder(folder.home, sweep) for sweep in order.sweeps]
    plans = [Manifest.read(one.manifest) for one in folders if one.manifest.is_file()]
    blocks = [block.resources for plan in plans for block in plan.blocks]
    engine = SlurmEngine(order.site)
    place = HeadJob(order.site.slurm, order.request.fleet_nodes, whole_nodes(order.site, blocks))
    name = name_in(place, folder)
    deadline = time.monotonic() + _PART_OF_NOTICE * place.notice_seconds
    with Notices(folder, tuple(map(Target, order.request.notify)), warn).at_the_end():
        left = _answered(lambda: [job for one in folders for job in jobs_of(one, engine)], deadline)
        able = _answered(lambda: [job for job in left if not _in_vain(engine, job)], deadline)
        if why := last_of_chain(order.starts, moved=moved, waiting=len(able)):
            vain = [told for job in left if not able and (told := engine.advice(job.reason)) is not None]
            again = vain[0] if vain else "The same command goes on"
            raise AccelsweepError(f"the time of this head is up, and {why}. {again}")
        with contextlib.suppress(AccelsweepError):  # it finds nodes to stay away from; `start` tells of a refusal
            place.check(folder, name)
        order.write(folder.of_head("order"))
        command = (sys.executable, "-P", "-m", "accelsweep.commands.detached.carry_on", str(folder.root))
        after = os.environ.get("SLURM_JOB_ID")
        number = _answered(lambda: place.start(folder, command, name, after=after), deadline)
    Handed(place="slurm", name=number, host=socket.gethostname(), since=now()).write(folder.of_head("handed"))
    say(f"the time of this head is up: job {number} takes over, with {count_of(len(left), 'job')} of the sweep")
    return EXIT_OK


def _in_vain(engine: SlurmEngine, job: Job) -> bool:
    return engine.waits(job) and engine.hopeless(job.reason)


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
    """Return why no further head follows one that ended at its time limit, None where one does."""
    if starts >= MOST_STARTS:
        return f"it was number {starts}: no further one is submitted"
    if not moved and not waiting:
        return "no run ended in all that time, and no job is left that can start: no further one is submitted"
    return None


def _stamps(folder: SweepFolder, order: HeadOrder) -> list[tuple[str, int]]:
    """Return what differs once a run of the sweeps has ended."""
    folders = [SweepFolder(folder.home, sweep) for sweep in order.sweeps]
    return [(str(path), path.stat().st_mtime_ns) for one in folders for path in one.records_on_top()]


def main() -> None:
    """Carry the order on that lies in the folder which the command line names."""
    os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")
    signal.signal(signal.SIGINT, signal.default_int_handler)  # whatever started this process
    interrupt_on_termination()
    root = sweep_parser("commands.detached.carry_on", "Do what the order in a sweep's folder says.").parse_args().sweep
    sys.exit(exit_code(lambda: carry_on(SweepFolder.of(root))))


if __name__ == "__main__":
    main()
