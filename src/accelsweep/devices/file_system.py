"""Tests which features a folder's file system supports, as it may be FAT, SMB, NFS, 9p or shared from a Mac.

Reading the mount table is not sufficient, because support also depends on the server and on mount options.
"""

from __future__ import annotations

import fcntl
import mmap
import os
import tempfile
from collections.abc import Callable
from enum import Enum
from pathlib import Path


class Capability(Enum):
    """Capabilities that some file systems lack; the value is the name shown to users."""

    hard_links = "hard links"
    symbolic_links = "symbolic links"
    locks = "file locks"
    shared_maps = "shared memory maps"
    modes = "permission bits"

    def __str__(self) -> str:
        return self.value


def missing_capabilities(folder: Path, *capabilities: Capability) -> list[Capability]:
    """Return which of the `capabilities` (by default all) the file system of `folder` lacks.

    Creates a hidden temporary folder inside `folder`. Raises OSError if `folder` is not writable.
    """
    with tempfile.TemporaryDirectory(dir=folder, prefix=".disk.", ignore_cleanup_errors=True) as probe:
        file = Path(probe, "file")
        file.write_bytes(b"0")
        return [capability for capability in capabilities or Capability if not _succeeds(_PROBES[capability], file)]


def free_inodes(folder: Path) -> int | None:
    """Return how many more files the user can create on the disk of `folder`; None if there is no limit."""
    status = os.statvfs(folder)
    return status.f_favail if status.f_files else None


def _succeeds(probe: Callable[[Path], None], file: Path) -> bool:
    try:
        probe(file)
    except OSError:
        return False
    return True


def _lock(file: Path) -> None:
    with file.open("r+b") as opened:
        fcntl.lockf(opened, fcntl.LOCK_EX | fcntl.LOCK_NB)


def _map(file: Path) -> None:
    with file.open("r+b") as opened:
        mmap.mmap(opened.fileno(), 1).close()


_PROBES: dict[Capability, Callable[[Path], None]] = {
    Capability.hard_links: lambda file: file.with_name("hard").hardlink_to(file),
    Capability.symbolic_links: lambda file: file.with_name("link").symlink_to(file.name),
    Capability.locks: _lock,
    Capability.shared_maps: _map,
    Capability.modes: lambda file: file.chmod(0o600),
}
