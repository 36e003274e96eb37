"""Temporary folders that are removed even if their process is killed.

A process locks its folders. The locks are released when it ends, so that a later process can remove unlocked folders.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

SETTLED_SECONDS = 60.0
"""A folder younger than this may belong to a process that has not locked it yet."""

_PURPOSES = ("compile", "debugging", "imports", "opened")


@contextlib.contextmanager
def temporary_folder(purpose: str) -> Iterator[Path]:
    """Create a folder in TMPDIR and remove it after the block, or later if this process is killed."""
    with (
        tempfile.TemporaryDirectory(prefix=f"accelsweep-{purpose}-", ignore_cleanup_errors=True) as made,
        _locked(Path(made), required=False),
    ):
        yield Path(made)


def remove_abandoned_folders(purposes: tuple[str, ...] = _PURPOSES) -> None:
    """Remove this user's temporary folders, except those locked by a live process."""
    base = Path(tempfile.gettempdir())
    for purpose in purposes:
        for folder in base.glob(f"accelsweep-{purpose}-*"):
            with contextlib.suppress(OSError):  # BlockingIOError: a live process has locked it
                made = folder.lstat()
                if made.st_uid == os.getuid() and time.time() - made.st_mtime > SETTLED_SECONDS:
                    with _locked(folder):
                        shutil.rmtree(folder)


@contextlib.contextmanager
def _locked(folder: Path, *, required: bool = True) -> Iterator[None]:
    """Lock a folder until the block or this process ends; raise BlockingIOError if another process holds the lock.

    Raises OSError on a file system that does not support locking folders, such as NFS. If the lock is not `required`,
    the block runs without a lock instead, and the folder is not removed if the process is killed.
    """
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            if required or isinstance(error, BlockingIOError):
                raise
        yield
    finally:
        os.close(descriptor)
