"""The temporary files of a sweep's processes: in a folder of its own, so that those of a kill can be removed.

A process that is killed leaves its temporary files behind: Snakemake's, torch's, and those of the user's code. Nobody
could tell later whose they were. So all children of a head have one folder below the user's TMPDIR, named by the sweep.
Whoever holds the sweep empties it, unless a supervisor still works there that outlived its head. After that the user's
next command removes it, whatever that command is about.
"""

from __future__ import annotations

import contextlib
import os
import stat
import tempfile
from collections.abc import Iterator
from pathlib import Path

from accelsweep.base.errors import InputError
from accelsweep.core.sites.site import Site
from accelsweep.state.folders import SweepFolder
from accelsweep.state.leftovers import SHORT_PLACES, own, remove_sweep_folder, sweep_folder_name
from accelsweep.supervise.ends.disk import LONGEST_TMPDIR, too_long

_VARIABLE = "TMPDIR"


@contextlib.contextmanager
def own_temporary_folder(folder: SweepFolder, site: Site) -> Iterator[Path | None]:
    """Return a folder for temporary files that is empty before the with-block and gone after it.

    Call it while holding the sweep. On one machine TMPDIR names it to all that is started in the with-block. On a
    cluster sbatch would hand the variable to jobs on other nodes, which lack the folder. There only Snakemake is told.
    Where TMPDIR is itself too long for sockets, the folder lies elsewhere. Everything stays as it is where only our own
    name makes it too long, and where the folder cannot be ours: None. Raises InputError where no place is short enough.
    """
    place = _place(folder)
    if len(str(place)) > LONGEST_TMPDIR or not _emptied(folder, place):
        yield None
        return
    try:
        with _told(place) if site.scheduler == "local" else contextlib.nullcontext():
            yield place
    finally:
        remove_sweep_folder(folder, place)


@contextlib.contextmanager
def _told(place: Path) -> Iterator[None]:
    before = os.environ.get(_VARIABLE)
    os.environ[_VARIABLE] = str(place)
    try:
        yield
    finally:
        if before is None:
            del os.environ[_VARIABLE]
        else:
            os.environ[_VARIABLE] = before


def _place(folder: SweepFolder) -> Path:
    """Return the folder's path: below the user's TMPDIR, or below another place where that is too long for sockets."""
    name = sweep_folder_name(folder)
    usual = tempfile.gettempdir()
    if len(usual) <= LONGEST_TMPDIR:
        return Path(usual, name)
    if (short := next((place for place in SHORT_PLACES if os.access(place, os.W_OK | os.X_OK)), None)) is None:
        raise InputError(
            f"{too_long(usual)}. Nor can {' or '.join(SHORT_PLACES)} be written to: set TMPDIR to a shorter path"
        )
    return Path(short, name)


def _emptied(folder: SweepFolder, place: Path) -> bool:
    """Return whether the folder is there, ours alone, and without files of the dead."""
    remove_sweep_folder(folder, place)
    try:
        own(folder, place)
        place.mkdir(mode=0o700, exist_ok=True)
        found = place.lstat()
    except OSError:
        return False
    return stat.S_ISDIR(found.st_mode) and found.st_uid == os.getuid() and not found.st_mode & 0o022
