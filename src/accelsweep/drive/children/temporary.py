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
from collections.abc import Iterator
from pathlib import Path

from accelsweep.core.sites.site import Site
from accelsweep.state.folders import SweepFolder
from accelsweep.state.leftovers import own, remove_sweep_folder, sweep_folder

_VARIABLE = "TMPDIR"
_LONGEST_PATH = 70
"""A socket's path has 107 characters at most; multiprocessing and torch add up to 36."""


@contextlib.contextmanager
def own_temporary_folder(folder: SweepFolder, site: Site) -> Iterator[Path | None]:
    """Return a folder for temporary files that is empty before the with-block and gone after it.

    Call it while holding the sweep. On one machine TMPDIR names it to all that is started in the with-block. On a
    cluster sbatch would hand the variable to jobs on other nodes, which lack the folder. There only Snakemake is told.
    Everything stays as it is where the path is too long for sockets, and where the folder cannot be ours: None.
    """
    place = sweep_folder(folder)
    if len(str(place)) > _LONGEST_PATH or not _emptied(folder, place):
        yield None
        return
    try:
        with _told(place) if site.scheduler == "local" else contextlib.nullcontext():
            yield place
    finally:
        remove_sweep_folder(folder)


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


def _emptied(folder: SweepFolder, place: Path) -> bool:
    """Return whether the folder is there, ours alone, and without files of the dead."""
    remove_sweep_folder(folder)
    try:
        own(folder)
        place.mkdir(mode=0o700, exist_ok=True)
        found = place.lstat()
    except OSError:
        return False
    return stat.S_ISDIR(found.st_mode) and found.st_uid == os.getuid() and not found.st_mode & 0o022
