"""Disk space for the files of a run, checked before it begins, and plain words for a disk that refuses."""

from __future__ import annotations

import shutil
import socket
import tempfile
from pathlib import Path

from accelsweep.base.errors import REFUSALS, AccelsweepError
from accelsweep.core.planned.settings import Limits
from accelsweep.machine.disk import free_inodes
from accelsweep.state.file_names import SWEEPS_FOLDER
from accelsweep.state.halts import Why

LONGEST_TMPDIR = 70
"""A socket's path has 107 characters at most; multiprocessing and torch add up to 36."""


class NoRoom(AccelsweepError):
    """The sweep's disk is too full to go on."""


def check_room(folder: Path, limits: Limits) -> None:
    """Raise NoRoom if the file system of a sweep's `folder` has less room for bytes or files than `limits` ask for."""
    place = f"{SWEEPS_FOLDER}/{folder.name}"
    free = shutil.disk_usage(folder).free
    if free < limits.free_disk_bytes:
        megabytes = {"free": free // 1_000_000, "asked": -(-limits.free_disk_bytes // 1_000_000)}
        raise NoRoom(Why.no_room.format(folder=place, **megabytes))
    files = free_inodes(folder)
    if files is not None and files < limits.free_disk_inodes:
        raise NoRoom(Why.no_inodes.format(folder=place, free=files, asked=limits.free_disk_inodes))


def check_temporary_folder() -> None:
    """Raise AccelsweepError where this process's temporary folder is too long for the sockets that a run makes there.

    Loader workers would wait for a socket that cannot be made until the run's time is up.
    """
    if len(found := tempfile.gettempdir()) > LONGEST_TMPDIR:
        raise AccelsweepError(f"{too_long(found)}. Set TMPDIR (on a cluster site.slurm.scratch) to a shorter path")


def too_long(folder: str) -> str:
    """Return the words for a temporary folder whose path is too long."""
    where = f"the temporary folder {folder[:40]}... on {socket.gethostname()}"
    return f"{where} has a path of {len(folder)} characters, and sockets leave room for {LONGEST_TMPDIR} (TMPDIR)"


def refusal(error: OSError, folder: Path) -> str | None:
    """Return the user's message where the system refused to read or write, or None for an error of another sort."""
    if error.errno not in REFUSALS:
        return None
    return Why.disk_refused.format(where=error.filename or folder, error=error.strerror)
