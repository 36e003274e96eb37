"""The head of a sweep: the one process that drives it. Its hold identifies it to `status` and to a second head."""

from __future__ import annotations

import contextlib
import os
import pwd
import shlex
import shutil
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

from accelsweep.devices import linux
from accelsweep.drive.detached.handed import handed_head
from accelsweep.drive.detached.places import detached
from accelsweep.drive.detached.slurm_job import HeadJob
from accelsweep.drive.versions.trees import restore_trees
from accelsweep.driver.console import warn
from accelsweep.errors import AccelsweepError, InputError
from accelsweep.executor.block_lock import end_executors, end_holder
from accelsweep.records.cleanup import set_strangers_aside
from accelsweep.records.file_lock import DEAD_AFTER_SECONDS, Holder, alive, living_hold, take
from accelsweep.records.file_times import bring_all_back, clocks_that_differ
from accelsweep.records.layout import SweepFolder
from accelsweep.records.plan import Hold, Manifest
from accelsweep.records.stop_reasons import forget_halts

# Leftovers of an earlier command, and obstacles to this one: put away before Snakemake looks.


def refuse_narrow_limits() -> None:
    """Raise InputError where the limits of this shell (`ulimit`) are too narrow for a sweep."""
    if narrow := list(linux.insufficient_limits()):
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


PATIENCE_SECONDS = 90.0
"""The time within which an old head ends after Ctrl-C: it waits only for its own children."""


def living_head(folder: SweepFolder) -> Hold | None:
    """Return the hold of the head that drives this sweep now, from this machine or from another one, or None."""
    return living_hold(folder.of_head("claim"))


def refuse_while_run(folder: SweepFolder) -> None:
    """Raise AccelsweepError if a head drives the sweep, or a supervisor works on a block of it, on any machine."""
    supervisors = (living_hold(path) for path in folder.holds())
    _refuse_beside_job(folder)
    for working in filter(None, (living_head(folder), *supervisors)):
        who = f"process {working.pid} on {working.host}"
        raise AccelsweepError(
            f"sweep {folder.name!r} is being run by {who}; wait for it (accelsweep status "
            f"{folder.name}) or stop it first"
        )


@contextlib.contextmanager
def held(folder: SweepFolder, *, cancel_old: bool = False) -> Iterator[Holder]:
    """Be the head of this sweep for the length of the block. Raises AccelsweepError if another head lives.

    Raises InputError where another user made the sweep and we may not write to it.

    With `cancel_old` another head, and every supervisor that a dead one left behind on this machine, is ended first.
    """
    refuse_unwritable(folder)
    if cancel_old:
        end_old(folder)
    head = take(folder.of_head("claim"), "head")
    if isinstance(head, Hold):
        raise AccelsweepError(
            f"sweep {folder.name!r} is already being run by process {head.pid} on {head.host} since "
            f"{head.since}{_elsewhere(head)}. Wait for it (accelsweep status {folder.name}), end it with "
            "--cancel-old, or choose another --name"
        )
    try:
        _refuse_beside_job(folder)
        yield head
    finally:
        head.release()


def _job_of_head(folder: SweepFolder) -> tuple[str, str] | None:
    """Return the cluster's job that is, or is to be, another head of the sweep: its number, and its state in words.

    A machine without Slurm knows of no job: the sweep came from elsewhere. Raises AccelsweepError if Slurm is silent.
    """
    handed = handed_head(folder)
    ours = handed is not None and handed.name == os.environ.get("SLURM_JOB_ID")
    if handed is None or handed.place != "slurm" or ours or shutil.which("squeue") is None:
        return None
    try:
        found = detached(folder)
    except AccelsweepError as error:
        raise AccelsweepError(
            f"whether the head of sweep {folder.name!r}, job {handed.name}, still waits or runs is not known: {error}. "
            "Try again when Slurm answers"
        ) from None
    return (handed.name, found[1].words) if found else None


def _refuse_beside_job(folder: SweepFolder) -> None:
    if job := _job_of_head(folder):
        raise AccelsweepError(
            f"the head of sweep {folder.name!r} was handed over: {job[1]}. "
            f"Follow it (accelsweep attach {folder.name}), or end it: --cancel-old, or scancel {job[0]}"
        )


def _elsewhere(hold: Hold) -> str:
    if alive(hold) is not None:
        return ""
    return f" (a head on another machine is taken for dead after {DEAD_AFTER_SECONDS:.0f} s of silence)"


def end_old(folder: SweepFolder) -> None:
    """End the sweep's living head as Ctrl-C would, then the supervisors on this machine; finished runs are kept."""
    if job := _job_of_head(folder):
        HeadJob().end(job[0], warn, patience_seconds=PATIENCE_SECONDS)
    head = living_head(folder)
    if head is not None and alive(head) is None:
        raise AccelsweepError(
            f"sweep {folder.name!r} is being run on {head.host}; --cancel-old works on one machine. "
            f"On {head.host}: kill -INT {head.pid} (kill {head.pid} where a script started it in the background)"
        )
    if head is not None:
        # A head that a script started in the background ignores SIGINT. SIGTERM leaves the jobs of a detached one.
        deaf = linux.handles_signal(head.pid, signal.SIGINT) is False
        end_holder(head, signal.SIGTERM if deaf else signal.SIGINT, warn, kill_after_seconds=PATIENCE_SECONDS)
    end_executors(folder, warn)
