"""Disk space for the files of a run, checked before it begins, and plain words for a disk that refuses."""

from __future__ import annotations

import errno
import shutil
from pathlib import Path

from accelsweep.core.errors import AccelsweepError

_REFUSALS = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EACCES, errno.EPERM, errno.EIO})


class NoRoom(AccelsweepError):
    """The sweep's disk is too full to go on."""


def check_room(folder: Path, free_disk_bytes: int) -> None:
    """Raise NoRoom if the file system of `folder` has less than `free_disk_bytes` free."""
    free = shutil.disk_usage(folder).free
    if free < free_disk_bytes:
        raise NoRoom(
            f"{folder}: {free / 1e6:.1f} MB are free, but limits.free_disk_bytes asks for "
            f"{free_disk_bytes / 1e6:.1f} MB; make room or lower it. Every finished run is kept"
        )


def refusal(error: OSError, folder: Path) -> str | None:
    """Return the user's message where the system refused to read or write, or None for an error of another sort."""
    if error.errno not in _REFUSALS:
        return None
    where = error.filename or folder
    return f"{where}: {error.strerror}; make the folder writable or make room on its disk. Every finished run is kept"
