"""The head of a sweep: the one process that drives it. Its claim tells `status`, and a second head, who that is."""

from __future__ import annotations

import os
import signal
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

import psutil
import typer

from accelsweep.core.errors import AccelsweepError
from accelsweep.core.folders import SweepFolder
from accelsweep.core.plans import Claim
from accelsweep.execute.claims import alive, end_holder, end_supervisors, read_claim

PATIENCE_SECONDS = 90.0
"""How long an old head may take to end after Ctrl-C: it waits for its own children, and then for nothing more."""


def living_head(folder: SweepFolder) -> Claim | None:
    """Return the claim of the head that drives this sweep from this machine now, or None."""
    claim = read_claim(_path(folder))
    return claim if claim is not None and alive(claim) else None


@contextmanager
def claimed(folder: SweepFolder, *, cancel_old: bool = False) -> Iterator[None]:
    """Be the head of this sweep for the length of the block. Raises AccelsweepError if another head lives.

    With `cancel_old` another head, and every supervisor that a dead one left behind on this machine, is ended first.
    """
    if cancel_old:
        end_old(folder)
    if other := living_head(folder):
        raise AccelsweepError(
            f"sweep {folder.name!r} is already being run by process {other.pid} on {other.host} since {other.since}; "
            f"wait for it (accelsweep status {folder.name}), end it with --cancel-old, or choose another --name"
        )
    Claim(
        block="head",
        host=socket.gethostname(),
        pid=os.getpid(),
        process_started=psutil.Process().create_time(),
        since=datetime.now(UTC).isoformat(timespec="seconds"),
    ).write(_path(folder))
    try:
        yield
    finally:
        _path(folder).unlink(missing_ok=True)


def end_old(folder: SweepFolder) -> None:
    """End the sweep's living head as Ctrl-C would, then the supervisors on this machine; finished runs are kept."""

    def say(line: str) -> None:
        typer.echo(line, err=True)

    if head := living_head(folder):
        end_holder(head, signal.SIGINT, say, patience_seconds=PATIENCE_SECONDS)
    end_supervisors(folder, say)


def _path(folder: SweepFolder) -> Path:
    return folder.root / "head.claim.json"
