"""The head of a sweep: the one process that drives it. Its hold identifies it to `status` and to a second head."""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Iterator
from pathlib import Path

from accelsweep.base.errors import AccelsweepError
from accelsweep.core.plans import Hold
from accelsweep.drive.console import warn
from accelsweep.state.folders import SweepFolder
from accelsweep.state.holding import Holder, take
from accelsweep.state.living import SILENCE_SECONDS, alive, living_hold
from accelsweep.supervise.block_hold import end_holder, end_supervisors

PATIENCE_SECONDS = 90.0
"""How long an old head may take to end after Ctrl-C: it waits only for its own children."""


def living_head(folder: SweepFolder) -> Hold | None:
    """Return the hold of the head that drives this sweep now, from this machine or from another one, or None."""
    return living_hold(_path(folder))


def refuse_while_run(folder: SweepFolder) -> None:
    """Raise AccelsweepError if a head drives the sweep, or a supervisor works on a block of it, on any machine."""
    supervisors = (living_hold(path) for path in folder.holds())
    for working in filter(None, (living_head(folder), *supervisors)):
        who = f"process {working.pid} on {working.host}"
        raise AccelsweepError(
            f"sweep {folder.name!r} is being run by {who}; wait for it (accelsweep status "
            f"{folder.name}) or stop it first"
        )


@contextlib.contextmanager
def held(folder: SweepFolder, *, cancel_old: bool = False) -> Iterator[Holder]:
    """Be the head of this sweep for the length of the block. Raises AccelsweepError if another head lives.

    With `cancel_old` another head, and every supervisor that a dead one left behind on this machine, is ended first.
    """
    if cancel_old:
        end_old(folder)
    head = take(_path(folder), "head")
    if isinstance(head, Hold):
        raise AccelsweepError(
            f"sweep {folder.name!r} is already being run by process {head.pid} on {head.host} since "
            f"{head.since}{_elsewhere(head)}. Wait for it (accelsweep status {folder.name}), end it with "
            "--cancel-old, or choose another --name"
        )
    try:
        yield head
    finally:
        head.release()


def _elsewhere(hold: Hold) -> str:
    if alive(hold) is not None:
        return ""
    return f" (a head on another machine is taken for dead after {SILENCE_SECONDS:.0f} s of silence)"


def end_old(folder: SweepFolder) -> None:
    """End the sweep's living head as Ctrl-C would, then the supervisors on this machine; finished runs are kept."""
    head = living_head(folder)
    if head is not None and alive(head) is None:
        raise AccelsweepError(
            f"sweep {folder.name!r} is being run on {head.host}; --cancel-old works on one machine: "
            f"kill -INT {head.pid} on {head.host}"
        )
    if head is not None:
        end_holder(head, signal.SIGINT, warn, patience_seconds=PATIENCE_SECONDS)
    end_supervisors(folder, warn)


def _path(folder: SweepFolder) -> Path:
    return folder.root / "head.claim.json"
