"""Temporary folders of a process, which are removed after it even where it was killed.

Such a folder is locked by its process, and the lock ends with it.
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
"""A younger temporary folder may have been made by a process that does not lock it yet."""

_PURPOSES = ("compile", "debugging", "opened")


@contextlib.contextmanager
def temporary_folder(purpose: str) -> Iterator[Path]:
    """Make a folder below TMPDIR that is gone after the with-block, or is removed later if this process is killed."""
    with (
        tempfile.TemporaryDirectory(prefix=f"accelsweep-{purpose}-", ignore_cleanup_errors=True) as made,
        _locked(Path(made), or_not=True),
    ):
        yield Path(made)


def remove_abandoned_folders(purposes: tuple[str, ...] = _PURPOSES) -> None:
    """Remove this user's temporary folders that no living process owns."""
    base = Path(tempfile.gettempdir())
    for purpose in purposes:
        for folder in base.glob(f"accelsweep-{purpose}-*"):
            with contextlib.suppress(OSError):  # BlockingIOError: a living process holds it
                made = folder.lstat()
                if made.st_uid == os.getuid() and time.time() - made.st_mtime > SETTLED_SECONDS:
                    with _locked(folder):
                        shutil.rmtree(folder)


@contextlib.contextmanager
def _locked(folder: Path, *, or_not: bool = False) -> Iterator[None]:
    """Hold a folder until the block ends, or this process does; raise BlockingIOError if another process holds it.

    Where its disk cannot lock folders, as NFS, this raises OSError; with `or_not` the block goes on without a hold, and
    nobody will remove the folder after a kill.
    """
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            if not or_not or isinstance(error, BlockingIOError):
                raise
        yield
    finally:
        os.close(descriptor)
