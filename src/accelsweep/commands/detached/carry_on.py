"""The detached head itself: it does what its order says, as the command would have, and notes how that ended.

A Slurm job is told some minutes before its time is up. Its head then lets its jobs run on, and submits the job that
goes on with the order. `python -m` this module is started with the sweep's folder.
"""

from __future__ import annotations

import os
import signal
import socket
import sys
import time
from pathlib import Path

from accelsweep.base.digits import count_of
from accelsweep.base.errors import EXIT_INCOMPLETE, EXIT_INTERRUPTED, EXIT_OK, AccelsweepError
from accelsweep.base.interrupts import HeadLeaves, end_as_by_ctrl_c, leave_when_told, stay
from accelsweep.commands.detached.order import HeadOrder
from accelsweep.commands.line.command_line import exit_code
from accelsweep.core.record import now
from accelsweep.drive.console import say
from accelsweep.drive.detached.handed import Handed, HeadEnd
from accelsweep.drive.detached.places import name_in
from accelsweep.drive.detached.slurm_job import HeadJob
from accelsweep.drive.jobs.settle import cancel_jobs, jobs_of
from accelsweep.engines.slurm.engine import SlurmEngine
from accelsweep.state.folders import SweepFolder
from accelsweep.state.living import living_hold

MOST_STARTS = 100
"""A chain of heads has an end, however slowly it gets on."""

_HOLD_SECONDS = 150.0
_LOOK_SECONDS = 2.0


def carry_on(folder: SweepFolder) -> int:
    """Do what the order of this sweep says; return the exit code."""
    order, began = HeadOrder.read(folder.of_head("order")).begun(folder), time.monotonic()
    order.write(folder.of_head("order"))
    if order.site.scheduler == "slurm":
        leave_when_told(lambda: HeadJob().cancelled(os.environ.get("SLURM_JOB_ID", "")))
    before = _stamps(folder, order)
    code, left = EXIT_INCOMPLETE, False
    try:
        code = exit_code(lambda: _done(folder, order))
        stay()
        if code == EXIT_INTERRUPTED:
            _cancel_jobs_of_chain(folder, order)
    except HeadLeaves as leaving:
        if leaving.again:
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
            cancel_jobs(SweepFolder(folder.home, sweep), SlurmEngine(order.site))


def _let_the_last_one_go(folder: SweepFolder, order: HeadOrder) -> None:
    """Wait for the hold of the head before this one, where that was killed on another node: it goes silent soon."""
    deadline = time.monotonic() + _HOLD_SECONDS
    while order.starts > 1 and living_hold(folder.of_head("claim")) is not None and time.monotonic() < deadline:
        time.sleep(_LOOK_SECONDS)


def _handed_on(folder: SweepFolder, order: HeadOrder, *, moved: bool) -> int:
    """Submit the job of the next head, to begin when this one has ended. Raises AccelsweepError where none is due."""
    engine = SlurmEngine(order.site)
    waiting = [job for sweep in order.sweeps for job in jobs_of(SweepFolder(folder.home, sweep), engine)]
    if why := last_of_chain(order.starts, moved=moved, waiting=len(waiting)):
        raise AccelsweepError(f"the time of this head is up, and {why}. The same command goes on")
    order.write(folder.of_head("order"))
    command = (sys.executable, "-m", "accelsweep.commands.detached.carry_on", str(folder.root))
    place = HeadJob(order.site.slurm)
    number = place.start(folder, command, name_in(place, folder), after=os.environ.get("SLURM_JOB_ID"))
    Handed(place="slurm", name=number, host=socket.gethostname(), since=now()).write(folder.of_head("handed"))
    left = count_of(len(waiting), "job")
    say(f"the time of this head is up: job {number} goes on, and {left} of the sweep meanwhile")
    return EXIT_OK


def last_of_chain(starts: int, *, moved: bool, waiting: int) -> str | None:
    """Return why no further head follows one that ended at its time limit, None where one does."""
    if starts >= MOST_STARTS:
        return f"it was number {starts}: no further one is submitted"
    if not moved and not waiting:
        return "no run ended in all that time, and no job is left: no further one is submitted"
    return None


def _stamps(folder: SweepFolder, order: HeadOrder) -> list[tuple[str, int]]:
    """Return what differs once a run of the sweeps has ended."""
    folders = [SweepFolder(folder.home, sweep) for sweep in order.sweeps]
    return [(str(path), path.stat().st_mtime_ns) for one in folders for path in one.records_on_top()]


def main() -> None:
    """Carry the order on that lies in the folder which the command line names."""
    os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")
    signal.signal(signal.SIGINT, signal.default_int_handler)  # whatever started this process
    end_as_by_ctrl_c()
    sys.exit(exit_code(lambda: carry_on(SweepFolder.of(Path(sys.argv[1])))))


if __name__ == "__main__":
    main()
