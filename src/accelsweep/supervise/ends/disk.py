"""Disk space for the files of a run, checked before it begins, and plain words for a disk that refuses."""

from __future__ import annotations

import shutil
from pathlib import Path

from accelsweep.base.errors import REFUSALS, AccelsweepError
from accelsweep.state.file_names import SWEEPS_FOLDER
from accelsweep.state.halts import Why


class NoRoom(AccelsweepError):
    """The sweep's disk is too full to go on."""


def check_room(folder: Path, free_disk_bytes: int) -> None:
    """Raise NoRoom if the file system of a sweep's `folder` has less than `free_disk_bytes` free."""
    free = shutil.disk_usage(folder).free
    if free < free_disk_bytes:
        megabytes = {"free": free // 1_000_000, "asked": -(-free_disk_bytes // 1_000_000)}
        raise NoRoom(Why.no_room.format(folder=f"{SWEEPS_FOLDER}/{folder.name}", **megabytes))


def refusal(error: OSError, folder: Path) -> str | None:
    """Return the user's message where the system refused to read or write, or None for an error of another sort."""
    if error.errno not in REFUSALS:
        return None
    return Why.disk_refused.format(where=error.filename or folder, error=error.strerror)
