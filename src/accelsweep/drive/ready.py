"""Leftovers of an earlier command, and obstacles to this one: put away before Snakemake looks."""

from __future__ import annotations

from collections.abc import Callable

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
