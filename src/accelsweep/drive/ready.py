"""Leftovers of an earlier command, and obstacles to this one: put away before Snakemake looks."""

from __future__ import annotations

import os
import pwd
import shlex
from collections.abc import Callable, Iterator
from pathlib import Path

from accelsweep.base.errors import InputError
from accelsweep.core.planned.plans import Manifest
from accelsweep.drive.versions.trees import restore_trees
from accelsweep.machine import linux
from accelsweep.state.folders import SweepFolder
from accelsweep.state.halts import forget_halts
from accelsweep.state.stamps import bring_all_back, clocks_that_differ
from accelsweep.state.strangers import set_strangers_aside


def refuse_narrow_limits() -> None:
    """Raise InputError where the limits of this shell (`ulimit`) are too narrow for a sweep."""
    if narrow := list(linux.narrow_limits()):
        raise InputError("; ".join(narrow))


def make_ready(folder: SweepFolder, say: Callable[[str], None]) -> None:
    """Forget a spent time budget and the halts of earlier supervisors, set aside what is in the way of files.

    Files that are stamped in the future are stamped now, and lost trees of versions are made again. `say` gets a line
    for what the user should know.
    """
    for stranger in set_strangers_aside(folder):
        say(f"warning: {stranger}")
    for sentence in restore_trees(folder, Manifest.read(folder.manifest)):
        say(f"warning: {sentence}")
    folder.stop.unlink(missing_ok=True)
    forget_halts(folder)
    for line in clocks_that_differ(folder, bring_all_back(folder)):
        say(line)


def refuse_unwritable(folder: SweepFolder) -> None:
    """Raise InputError where the sweep is another user's, and the files that a command writes anew are closed to us.

    Snakemake would notice after the last run. On a disk that is read-only as a whole the first write says so.
    """
    if not folder.root.is_dir() or os.statvfs(folder.root).f_flag & os.ST_RDONLY:
        return
    closed = [path for path in _written_anew(folder) if not os.access(path, os.W_OK)]
    if not closed:
        return
    owner = closed[0].stat().st_uid
    ours = [folder.root, folder.report, folder.home / ".snakemake", *folder.home.glob("mlflow.db")]
    places = shlex.join(str(path.relative_to(folder.home)) for path in ours if path.exists())
    others = f" (and {len(closed) - 1} more)" if len(closed) > 1 else ""
    what = f"you may not write to {closed[0].relative_to(folder.home)}{others}"
    if owner == os.getuid():
        raise InputError(f"{what}: chmod -R u+w {places}")
    raise InputError(
        f"{what}, which belong{'' if others else 's'} to {_name_of(owner)}. For a sweep of a group let them give "
        f"`chmod -R g+w {places}`, and let all of you set `umask 002` before you measure; or measure under a name of "
        "your own (--name)"
    )


def _written_anew(folder: SweepFolder) -> Iterator[Path]:
    """Yield the folders and files of a sweep that the next command changes; those of finished runs stay as they are."""
    for place in (folder.root, folder.report, folder.home / ".snakemake"):
        if place.is_dir():
            yield place
            yield from (path for path in sorted(place.iterdir()) if not path.is_symlink())
    yield from sorted(folder.root.glob("blocks/*.json"))


def _name_of(user: int) -> str:
    try:
        return pwd.getpwuid(user).pw_name
    except KeyError:
        return f"user {user}"
