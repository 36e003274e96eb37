"""The abilities of a folder's file system, found out by trying them: it may be FAT, SMB, NFS, 9p, or a Mac's.

No mount table tells them: what a share can do depends on its server and on the options it was mounted with.
"""

from __future__ import annotations

import fcntl
import mmap
import os
import tempfile
from collections.abc import Callable
from enum import StrEnum
from pathlib import Path


class Ability(StrEnum):
    """What most file systems can do and some cannot, with its name for users."""

    hard_links = "hard links"
    symbolic_links = "symbolic links"
    locks = "file locks"
    shared_maps = "shared memory maps"
    modes = "permission bits"


def lacking(folder: Path, *abilities: Ability) -> list[Ability]:
    """Return which of these abilities, by default of all, the file system of `folder` lacks.

    It makes files in a hidden folder there for a moment. Raises OSError where `folder` cannot be written.
    """
    with tempfile.TemporaryDirectory(dir=folder, prefix=".disk.", ignore_cleanup_errors=True) as made:
        file = Path(made, "file")
        file.write_bytes(b"0")
        return [one for one in abilities or Ability if not _can(_TRIES[one], file)]


def free_inodes(folder: Path) -> int | None:
    """Return how many more files this user can make on the disk of `folder`; None where its number has no limit."""
    found = os.statvfs(folder)
    return found.f_favail if found.f_files else None


def _can(attempt: Callable[[Path], None], file: Path) -> bool:
    try:
        attempt(file)
    except OSError:
        return False
    return True


def _lock(file: Path) -> None:
    with file.open("r+b") as opened:
        fcntl.lockf(opened, fcntl.LOCK_EX | fcntl.LOCK_NB)


def _map(file: Path) -> None:
    with file.open("r+b") as opened:
        mmap.mmap(opened.fileno(), 1).close()


_TRIES: dict[Ability, Callable[[Path], None]] = {
    Ability.hard_links: lambda file: file.with_name("hard").hardlink_to(file),
    Ability.symbolic_links: lambda file: file.with_name("link").symlink_to(file.name),
    Ability.locks: _lock,
    Ability.shared_maps: _map,
    Ability.modes: lambda file: file.chmod(0o600),
}
