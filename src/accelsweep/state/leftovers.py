"""Files that a kill left half written: swept up once no process can still be writing them.

Every file is written under a temporary name first and then renamed (`base.documents`, `rank.steps`, `report.write`). A
SIGKILL between the two leaves the temporary file behind. It is never read. It is removed here if its name, its owner
and its kind show that it is ours. It must also be old by the clock of its own file system.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import stat
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

from accelsweep.state.folders import SweepFolder

STALE_SECONDS = 3600.0
"""No write takes so long; a younger file may still be written."""

NEW_DATABASE = "new.db"
"""The name of a database until it is whole."""

_RANDOM = r"[a-z0-9_]{8}"
_FILE = re.compile(rf"\.[\w.-]+\.(json\.{_RANDOM}(\.part\.{_RANDOM})?|parquet(\.{_RANDOM})?)\.part", re.ASCII)
"""Twice over where a hold was being written before it is linked into its place."""


def sweep_up(folder: SweepFolder) -> list[Path]:
    """Remove the stale half-written files of a sweep, of its report and of imports beside it; return their paths."""
    found = [*_files(folder), *_reports(folder), *_imports(folder.home)]
    if not found or (now := now_on(folder.root)) is None:
        return []
    stale = [path for path, changed in found if abs(now - changed) > STALE_SECONDS]
    for path in stale:
        with contextlib.suppress(OSError):
            shutil.rmtree(path) if path.is_dir() else path.unlink()
    return [path for path in stale if not path.exists()]


def sweep_up_databases(path: Path) -> None:
    """Remove the stale folders in which the database at `path` was being made by a process that was killed."""
    making = re.compile(rf"\.{re.escape(path.name)}\.{_RANDOM}")
    folders = [folder for folder in path.parent.glob(f".{path.name}.*") if making.fullmatch(folder.name)]
    found = [one for folder in folders for one in _ours(folder, stat.S_ISDIR)]
    if found and (now := now_on(path.parent)) is not None:
        for folder, changed in found:
            inside = [one.name for one in folder.iterdir()]
            if abs(now - changed) > STALE_SECONDS and all(name.startswith(NEW_DATABASE) for name in inside):
                shutil.rmtree(folder, ignore_errors=True)


def now_on(folder: Path) -> float | None:
    """Return the time by the clock that stamps the files of `folder`, in seconds since 1970; None if it is read-only.

    On a shared file system that is the server's clock, which may differ much from the machine's own.
    """
    try:
        with tempfile.NamedTemporaryFile(dir=folder, prefix=".clock.json.", suffix=".part") as made:
            return os.fstat(made.fileno()).st_mtime
    except OSError:
        return None


def _files(folder: SweepFolder) -> Iterator[tuple[Path, float]]:
    for place, _, names in os.walk(folder.root):
        for name in names:
            if _FILE.fullmatch(name):
                yield from _ours(Path(place, name), stat.S_ISREG)


def _reports(folder: SweepFolder) -> Iterator[tuple[Path, float]]:
    building = re.compile(rf"\.{re.escape(folder.name)}\.{_RANDOM}\.part")
    for path in folder.report.parent.glob(f".{folder.name}.*.part"):
        if building.fullmatch(path.name):
            yield from _ours(path, stat.S_ISDIR)


def _imports(home: Path) -> Iterator[tuple[Path, float]]:
    unpacking = re.compile(rf"\.import\.{_RANDOM}\.part")
    for path in home.glob(".import.*.part"):
        if unpacking.fullmatch(path.name):
            yield from _ours(path, stat.S_ISDIR)


def _ours(path: Path, is_kind: Callable[[int], bool]) -> Iterator[tuple[Path, float]]:
    with contextlib.suppress(OSError):
        found = path.lstat()
        if is_kind(found.st_mode) and found.st_uid == os.getuid():
            yield path, found.st_mtime
