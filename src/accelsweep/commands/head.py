"""The head of a sweep: the one process that drives it. Its claim tells `status`, and a second head, who that is."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

import psutil

from accelsweep.core.errors import AccelsweepError, DamagedFile
from accelsweep.core.folders import SweepFolder
from accelsweep.core.plans import Claim


def living_head(folder: SweepFolder) -> Claim | None:
    """Return the claim of the head that drives this sweep from this machine now, or None."""
    try:
        claim = Claim.read(_path(folder))
    except (FileNotFoundError, DamagedFile):
        return None
    if claim.host != socket.gethostname():
        return None
    try:
        same = abs(psutil.Process(claim.pid).create_time() - claim.process_started) < 1.0
    except psutil.NoSuchProcess:
        return None
    return claim if same else None


@contextmanager
def claimed(folder: SweepFolder) -> Iterator[None]:
    """Be the head of this sweep for the length of the block. Raises AccelsweepError if another head lives."""
    if other := living_head(folder):
        raise AccelsweepError(
            f"sweep {folder.name!r} is already being run by process {other.pid} on {other.host} since {other.since}; "
            f"wait for it (accelsweep status {folder.name}), stop it with Ctrl-C, or choose another --name"
        )
    me = psutil.Process(os.getpid())
    Claim(
        block="head",
        host=socket.gethostname(),
        pid=me.pid,
        process_started=me.create_time(),
        since=datetime.now(UTC).isoformat(timespec="seconds"),
    ).write(_path(folder))
    try:
        yield
    finally:
        _path(folder).unlink(missing_ok=True)


def _path(folder: SweepFolder) -> Path:
    return folder.root / "head.claim.json"
