"""`accelsweep.open`: a sweep's folder, its name, an archive, or several of them, as an `OpenedSweep`. Writes nothing.

An archive is checked as a whole, then unpacked to a temporary folder that goes with the opened sweep.
"""

from __future__ import annotations

import contextlib
import os
import weakref
from collections.abc import Sequence
from pathlib import Path
from typing import TypeAlias

from accelsweep.base.errors import InputError
from accelsweep.notebook.opened import OpenedSweep
from accelsweep.state.archive.check import checked
from accelsweep.state.archive.unpack import unpacked
from accelsweep.state.folders import SweepFolder, existing_sweep, known_sweeps
from accelsweep.state.leftovers import temporary_folder

Source: TypeAlias = str | os.PathLike[str]
"""A sweep's folder `sweeps/NAME`, its name in the working directory, or an archive's file."""


def open_sweep(source: Source | Sequence[Source]) -> OpenedSweep:
    """Return a sweep read from its records: a folder `sweeps/NAME`, a name, or an archive of `accelsweep export`.

    Several are merged by hardware, as `accelsweep report A B` does: the first one gives the baseline and the analysis'
    settings. Nothing is written, no code of the sweep is run, and torch is not imported. Raises InputError if there is
    no such sweep, an archive cannot be used, or two have one name; DamagedFile if a plan is damaged.
    """
    sources = [source] if isinstance(source, str | os.PathLike) else list(source)
    if not sources:
        raise InputError('there is nothing to open: give a folder, an archive or a list, as in open("sweeps/NAME")')
    with contextlib.ExitStack() as made:
        folders = [_folder(Path(one), made) for one in sources]
        _refuse_doubles([folder.name for folder in folders])
        opened = OpenedSweep(folders)
        weakref.finalize(opened, made.pop_all().close)
    return opened


def _folder(path: Path, made: contextlib.ExitStack) -> SweepFolder:
    """Return the folder of a sweep; that of an archive is a new temporary one, which goes with `made`."""
    here = known_sweeps(Path.cwd())
    if str(path) in here:
        return existing_sweep(Path.cwd(), str(path))
    if path.is_dir():
        folder = SweepFolder.of(path)
        return existing_sweep(folder.home, folder.name)
    if path.exists():
        with checked(path) as archive:
            return unpacked(archive, made.enter_context(temporary_folder("opened")), archive.contents.name)
    listing = f"; the sweeps here are: {', '.join(here)}" if here else ""
    raise InputError(f"there is no sweep and no archive at {path.absolute()}{listing}")


def _refuse_doubles(names: list[str]) -> None:
    double = next((name for name in names if names.count(name) > 1), None)
    if double is not None:
        raise InputError(
            f"two of these sweeps are called {double!r}: bring one in under another name, with "
            "`accelsweep import FILE --name NEW`"
        )
