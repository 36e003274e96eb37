"""Checks before a run starts: free disk space, and a temporary folder whose path is short enough for Unix sockets."""

from __future__ import annotations

import shutil
import socket
import tempfile
from pathlib import Path

from accelsweep.config.sweep_options import Limits
from accelsweep.devices.file_system import free_inodes
from accelsweep.errors import DISK_ERRORS, AccelsweepError
from accelsweep.records.layout import SWEEPS_FOLDER
from accelsweep.records.not_run_reasons import StopReason

MAX_TMPDIR_LENGTH = 70
"""A socket's path is limited to 107 characters, of which multiprocessing and torch need up to 36 after TMPDIR."""


class DiskFull(AccelsweepError):
    """The sweep's file system has less free space than `limits` reserve."""


def check_disk_space(folder: Path, limits: Limits) -> None:
    """Raise DiskFull if the file system of a sweep's `folder` lacks the bytes or inodes that `limits` reserve."""
    place = f"{SWEEPS_FOLDER}/{folder.name}"
    free = shutil.disk_usage(folder).free
    if free < limits.free_disk_bytes:
        megabytes = {"free": free // 1_000_000, "asked": -(-limits.free_disk_bytes // 1_000_000)}
        raise DiskFull(StopReason.no_room.format(folder=place, **megabytes))
    inodes = free_inodes(folder)
    if inodes is not None and inodes < limits.free_disk_inodes:
        raise DiskFull(StopReason.no_inodes.format(folder=place, free=inodes, asked=limits.free_disk_inodes))


def check_temporary_folder() -> None:
    """Raise AccelsweepError if the temporary folder's path is too long for sockets.

    Otherwise, loader workers would be unable to create sockets and would hang until the run's time limit.
    """
    if len(folder := tempfile.gettempdir()) > MAX_TMPDIR_LENGTH:
        raise AccelsweepError(
            f"{tmpdir_too_long(folder)}. Set TMPDIR (on a cluster: site.slurm.scratch) to a shorter path"
        )


def tmpdir_too_long(folder: str) -> str:
    """Return the message about a temporary folder whose path is too long."""
    where = f"the temporary folder {folder[:40]}... on {socket.gethostname()}"
    return f"{where} has a path of {len(folder)} characters, but sockets allow at most {MAX_TMPDIR_LENGTH} (TMPDIR)"


def disk_error_message(error: OSError, folder: Path) -> str | None:
    """Return the message for the user if reading from or writing to the disk failed; None for any other error."""
    if error.errno not in DISK_ERRORS:
        return None
    return StopReason.disk_refused.format(where=error.filename or folder, error=error.strerror)
