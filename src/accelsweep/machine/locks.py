"""The folder that a user has on a machine: locks, and what takes long to make. Only its owner can write to it."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import IO

from accelsweep.base.documents import sha256_text
from accelsweep.base.errors import AccelsweepError

FOLDER_VARIABLE = "ACCELSWEEP_LEASES"
"""Environment variable that names another node-local folder."""

_NO_LOCKS = frozenset({errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP, errno.EINVAL})


def lease_folder() -> Path:
    """Return the node-local folder, made if need be. Refuses one that another user could tamper with."""
    folder = Path(os.environ.get(FOLDER_VARIABLE) or f"/tmp/accelsweep-{os.getuid()}")  # noqa: S108 - owner checked below
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    found = folder.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid() or found.st_mode & 0o022:
        raise AccelsweepError(
            f"{folder} is not a folder that only you can write to; set {FOLDER_VARIABLE} to one that is"
        )
    return folder


def lock(file: int | IO[bytes] | IO[str], how: int = fcntl.LOCK_EX) -> None:
    """Lock a file of the node-local folder (`man 2 flock`). Raises BlockingIOError where `how` says not to wait.

    Raises AccelsweepError where the folder's file system has no locks.
    """
    try:
        fcntl.flock(file, how)
    except OSError as error:
        if error.errno not in _NO_LOCKS:
            raise
        raise AccelsweepError(
            f"{lease_folder()} lies on a disk that has no file locks ({error.strerror}), by which runs take turns: set "
            f"{FOLDER_VARIABLE} to a folder of this machine's own disk"
        ) from None


@contextlib.contextmanager
def alone_with(purpose: str, path: Path) -> Iterator[None]:
    """Wait until no other process of this user on this machine is in the same with-block for `path`."""
    path = lease_folder() / f"{purpose}-{sha256_text(str(path.resolve()))[:16]}.lock"
    with path.open("w") as file:
        lock(file)
        yield
