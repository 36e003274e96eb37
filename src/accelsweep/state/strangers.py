"""Strangers in the place of a sweep's files and folders.

A folder, a device or a pipe where a file belongs is set aside, never used. A file where a folder belongs may be
anybody's: nothing is planned until its owner has moved it away.
"""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Iterator
from pathlib import Path

from accelsweep.base.documents import clear_place
from accelsweep.base.errors import DamagedFile, InputError
from accelsweep.state.file_names import ATTEMPTS_FOLDER, REPORTS_FOLDER, RUNS_FOLDER, SWEEPS_FOLDER
from accelsweep.state.folders import SweepFolder

_SUFFIXES = frozenset({".json", ".parquet", ".log", ".done"})
"""Those of the files that we write; no folder of ours has one."""

DRAWN_SUFFIXES = frozenset({".html", ".svg", ".csv", ".md"})
"""Those of the report's files."""

_LONGEST_PATH = 512
_LEFT_IN_NOTES = re.compile(r"^@|\.damaged-")
"""Snakemake's own folders, for outputs with long names, and what was set aside before."""


def refuse_obstacles(folder: SweepFolder) -> None:
    """Raise InputError where a folder of the sweep cannot be made, because a file or a link to nothing is there.

    So it does where the working folder's path is too long for SQLite, which keeps MLflow's store.
    """
    needed = [
        folder.home / SWEEPS_FOLDER,
        folder.root,
        *(folder.root / name for name in ("blocks", RUNS_FOLDER, "logs")),
    ]
    for path in [*needed, folder.home / REPORTS_FOLDER, folder.report, folder.home / ".snakemake"]:
        if os.path.lexists(path) and not path.is_dir():
            there = f"a link to {path.readlink()}, where no folder is" if path.is_symlink() else "a file"
            away = shlex.join(["mv", str(path), f"{path}.old"])
            raise InputError(f"{path} is {there}, and a folder is needed there. Move it away: {away}")
    if (length := len(os.fsencode(folder.home / "mlflow.db-journal"))) > _LONGEST_PATH:
        raise InputError(
            f"the path of the working folder is too long: MLflow's store would have one of {length} bytes, and SQLite "
            f"takes {_LONGEST_PATH}. Move the project to a place with a shorter path: {str(folder.home)[:60]}..."
        )


def set_strangers_aside(folder: SweepFolder) -> list[DamagedFile]:
    """Set aside what stands where files of the sweep belong; return what it was, with its new name."""
    places = [*_places(folder), folder.stop, *_drawn(folder), *_notes(folder)]
    return [
        DamagedFile(path, f"it is no file: something else stood there; set aside as {aside.name}")
        for path in places
        if (aside := clear_place(path)) is not None
    ]


def _places(folder: SweepFolder) -> Iterator[Path]:
    for place, folders, files in os.walk(folder.root):
        names = [name for name in (*folders, *files) if Path(name).suffix in _SUFFIXES]
        folders[:] = [
            name for name in folders if name not in names and name != ATTEMPTS_FOLDER
        ]  # there runs may leave what they like
        yield from (Path(place, name) for name in names)


def _drawn(folder: SweepFolder) -> Iterator[Path]:
    yield from (path for path in folder.report.glob("*") if path.suffix in DRAWN_SUFFIXES)


def _notes(folder: SweepFolder) -> Iterator[Path]:
    """Yield Snakemake's notes on what it made: it waits for ever at a FIFO, and fails at a folder in their place."""
    for place in ("metadata", "incomplete"):
        noted = (folder.home / ".snakemake" / place).glob("*")
        yield from (path for path in noted if not _LEFT_IN_NOTES.search(path.name))
