"""Strangers in the place of a sweep's files: a folder, a device, a pipe. They are set aside, never used."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path

from accelsweep.base.documents import clear_place
from accelsweep.base.errors import DamagedFile
from accelsweep.state.file_names import ATTEMPTS_FOLDER
from accelsweep.state.folders import SweepFolder

_SUFFIXES = frozenset({".json", ".parquet", ".log", ".done"})
"""Those of the files that we write; no folder of ours has one."""

DRAWN_SUFFIXES = frozenset({".html", ".svg", ".csv", ".md"})
"""Those of the report's files."""

_LEFT_IN_NOTES = re.compile(r"^@|\.damaged-")
"""Snakemake's own folders, for outputs with long names, and what was set aside before."""


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
