"""The head of a sweep: the one process that drives it. Its hold identifies it to `status` and to a second head."""

from __future__ import annotations

import contextlib
import os
import pwd
import shlex
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Protocol

from pydantic import Field

from accelsweep import registry
from accelsweep.devices import linux
from accelsweep.driver.console import warn
from accelsweep.errors import AccelsweepError, InputError
from accelsweep.executor.block_lock import end_executors, end_holder
from accelsweep.json_documents import Frozen
from accelsweep.records.cleanup import set_unexpected_files_aside
from accelsweep.records.file_lock import STALE_AFTER_SECONDS, HeldLock, acquire, live_lock, owner_is_alive
from accelsweep.records.file_times import clamp_sweep_times, clock_warnings
from accelsweep.records.layout import SweepFolder
from accelsweep.records.plan import LockOwner
from accelsweep.records.stop_reasons import remove_halts

# Leftovers of an earlier command, and obstacles to this one: put away before Snakemake looks.


def refuse_narrow_limits() -> None:
    """Raise InputError where the limits of this shell (`ulimit`) are too narrow for a sweep."""
    if narrow := list(linux.insufficient_limits()):
        raise InputError("; ".join(narrow))


def make_ready(folder: SweepFolder, say: Callable[[str], None]) -> None:
    """Forget a spent time budget and the halts of earlier supervisors, set aside what is in the way of files.

    Files that are stamped in the future are stamped now, and features restore what they need. `say` gets a line for
    what the user should know.
    """
    for stranger in set_unexpected_files_aside(folder):
        say(f"warning: {stranger}")
    for restore in registry.loaded("before_measuring"):
        for sentence in restore(folder):
            say(f"warning: {sentence}")
    folder.stop.unlink(missing_ok=True)
    remove_halts(folder)
    for line in clock_warnings(folder, clamp_sweep_times(folder)):
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


def living_head(folder: SweepFolder) -> LockOwner | None:
    """Return the hold of the head that drives this sweep now, from this machine or from another one, or None."""
    return live_lock(folder.driver_file("claim"))


def refuse_while_run(folder: SweepFolder) -> None:
    """Raise AccelsweepError if a head drives the sweep, or a supervisor works on a block of it, on any machine."""
    supervisors = (live_lock(path) for path in folder.locks())
    _refuse_beside_job(folder)
    for working in filter(None, (living_head(folder), *supervisors)):
        who = f"process {working.pid} on {working.host}"
        raise AccelsweepError(
            f"sweep {folder.name!r} is being run by {who}; wait for it (accelsweep status "
            f"{folder.name}) or stop it first"
        )


@contextlib.contextmanager
def held(folder: SweepFolder, *, cancel_old: bool = False) -> Iterator[HeldLock]:
    """Be the head of this sweep for the length of the block. Raises AccelsweepError if another head lives.

    Raises InputError where another user made the sweep and we may not write to it.

    With `cancel_old` another head, and every supervisor that a dead one left behind on this machine, is ended first.
    """
    refuse_unwritable(folder)
    if cancel_old:
        end_old(folder)
    head = acquire(folder.driver_file("claim"), "head")
    if isinstance(head, LockOwner):
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


class BackgroundState(Frozen):
    """The driver that was started in the background last."""

    place: str = Field(description="where it was started, such as `slurm`, `systemd` or `tmux`")
    name: str = Field(description="its job, unit or session there")
    host: str = Field(description="the machine that started it")
    since: str = Field(description="when it was started")
    state: str | None = Field(description="where it is now, or why nobody knows; null where it is gone")
    code: int | None = Field(description="its exit code, null until it ends")
    follow: str = Field(description="the command that shows its output")


class BackgroundDriver(Protocol):
    """The driver of a sweep that a feature started in the background (`registry.Feature.background_driver`)."""

    def __init__(self, folder: SweepFolder) -> None:
        """`folder` is the sweep's."""

    def state(self) -> BackgroundState | None:
        """Return its state, None where none was started."""

    def competing(self) -> str | None:
        """Return how it is in this process' way, in words: it waits or runs elsewhere. Raises if nobody knows."""

    def end(self, say: Callable[[str], None], patience_seconds: float) -> None:
        """End the competing one."""


def background_drivers(folder: SweepFolder) -> Iterator[BackgroundDriver]:
    """Yield the drivers of a sweep that features may have started in the background."""
    for kind in registry.loaded("background_driver"):
        yield kind(folder)


def _refuse_beside_job(folder: SweepFolder) -> None:
    for driver in background_drivers(folder):
        if why := driver.competing():
            raise AccelsweepError(why)


def _elsewhere(hold: LockOwner) -> str:
    if owner_is_alive(hold) is not None:
        return ""
    return f" (a head on another machine is taken for dead after {STALE_AFTER_SECONDS:.0f} s of silence)"


def end_old(folder: SweepFolder) -> None:
    """End the sweep's living head as Ctrl-C would, then the supervisors on this machine; finished runs are kept."""
    for driver in background_drivers(folder):
        if driver.competing():
            driver.end(warn, PATIENCE_SECONDS)
    head = living_head(folder)
    if head is not None and owner_is_alive(head) is None:
        raise AccelsweepError(
            f"sweep {folder.name!r} is being run on {head.host}; --cancel-old works on one machine. "
            f"On {head.host}: kill -INT {head.pid} (kill {head.pid} where a script started it in the background)"
        )
    if head is not None:
        # A head that a script started in the background ignores SIGINT. SIGTERM leaves the jobs of a detached one.
        deaf = linux.handles_signal(head.pid, signal.SIGINT) is False
        end_holder(head, signal.SIGTERM if deaf else signal.SIGINT, warn, kill_after_seconds=PATIENCE_SECONDS)
    end_executors(folder, warn)
