"""Holds with a living holder: one rule for heads and for supervisors, for waiting and for showing the status.

On its own host a hold lives as long as its process. From another host it lives as long as its file is touched, which
its holder does every `BEAT_SECONDS`. The clock of the file system tells how long ago that was, so that the machines'
own clocks may differ.
"""

from __future__ import annotations

import os
import socket
import tempfile
from pathlib import Path

import psutil

from accelsweep.base.errors import DamagedFile
from accelsweep.core.planned.plans import Hold
from accelsweep.state.folders import SweepFolder

BEAT_SECONDS = 20.0
DEAD_AFTER_SECONDS = 5 * BEAT_SECONDS
"""A hold of another host that was not touched for so long is dead."""

_SAME_START_SECONDS = 5.0  # psutil derives start times from the boot time, which moves a little with the clock


def read_hold(path: Path) -> Hold | None:
    """Return the hold in the file at `path`; None where there is none, or none that can be read."""
    try:
        return Hold.read(path)
    except (FileNotFoundError, DamagedFile):
        return None  # a hold is put into its place whole: a damaged one has no holder


def living_hold(path: Path) -> Hold | None:
    """Return the hold in the file at `path` if its holder lives, else None."""
    hold = read_hold(path)
    return hold if hold is not None and living(hold, path) else None


def command_began(folder: SweepFolder) -> str | None:
    """Return when the command that drives the sweep now began (UTC, ISO 8601); None where nobody drives it."""
    head = living_hold(folder.of_head("claim"))
    return None if head is None else head.since


def living(hold: Hold, path: Path) -> bool:
    """Return whether the holder of `hold`, which stands at `path`, lives."""
    here = alive(hold)
    return _heard_of(path) if here is None else here


def alive(hold: Hold) -> bool | None:
    """Return whether the hold's process lives; None if it is on another host, where this cannot be asked."""
    if hold.host != socket.gethostname():
        return None
    try:
        process = psutil.Process(hold.pid)
        same = abs(process.create_time() - hold.process_started) < _SAME_START_SECONDS
        return same and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def _heard_of(path: Path) -> bool:
    try:
        beaten = path.stat().st_mtime  # fresh on NFS too: the file was opened just now
    except FileNotFoundError:
        return False
    now = now_on(path.parent)
    return now is None or abs(now - beaten) < DEAD_AFTER_SECONDS  # beaten in the future: before a clock was set back


def now_on(folder: Path) -> float | None:
    """Return the time by the clock that stamps the files of `folder`, in seconds since 1970; None if it is read-only.

    On a shared file system that is the server's clock, which may differ much from the machine's own.
    """
    try:
        with tempfile.NamedTemporaryFile(dir=folder, prefix=".clock.json.", suffix=".part") as made:
            return os.fstat(made.fileno()).st_mtime
    except OSError:
        return None
