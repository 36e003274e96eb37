"""The lock held by a sweep's driver: it identifies the driver to `status` and prevents a second driver."""

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
from accelsweep.records.not_run_reasons import remove_halts
from accelsweep.records.plan import LockOwner

GRACE_SECONDS = 90.0
"""How long another driver may take to end after Ctrl-C, when it is only waiting for its own children."""


class BackgroundState(Frozen):
    """The driver that was most recently started in the background."""

    place: str = Field(description="where it was started, such as `slurm`, `systemd` or `tmux`")
    name: str = Field(description="the name of its job, unit or session there")
    host: str = Field(description="the machine that started it")
    since: str = Field(description="when it was started")
    state: str | None = Field(description="its current state, or why the state is unknown; null once it is gone")
    code: int | None = Field(description="its exit code, null until it ends")
    follow: str = Field(description="the command that shows its output")


class BackgroundDriver(Protocol):
    """The driver of a sweep that a feature started in the background (`registry.Feature.background_driver`)."""

    def __init__(self, folder: SweepFolder) -> None:
        """`folder` is the sweep's folder."""

    def state(self) -> BackgroundState | None:
        """Return the driver's state; None if no driver was started."""

    def conflict(self) -> str | None:
        """Return why this process must not drive the sweep: another driver is queued or running. Raises if unknown."""

    def end(self, say: Callable[[str], None], grace_seconds: float) -> None:
        """End the driver that causes the conflict."""


def background_drivers(folder: SweepFolder) -> Iterator[BackgroundDriver]:
    """Yield the drivers of a sweep that features may have started in the background."""
    for kind in registry.loaded("background_driver"):
        yield kind(folder)


def active_driver(folder: SweepFolder) -> LockOwner | None:
    """Return the lock of the driver currently running this sweep on any machine; None if there is none."""
    return live_lock(folder.driver_file("lock"))


def refuse_if_running(folder: SweepFolder) -> None:
    """Raise AccelsweepError if any machine has a driver running the sweep or an executor running one of its blocks."""
    _refuse_background_driver(folder)
    executors = (live_lock(path) for path in folder.locks())
    for lock in filter(None, (active_driver(folder), *executors)):
        raise AccelsweepError(
            f"sweep {folder.name!r} is being run by process {lock.pid} on {lock.host}; wait for it (accelsweep status "
            f"{folder.name}) or stop it first"
        )


def _refuse_background_driver(folder: SweepFolder) -> None:
    for driver in background_drivers(folder):
        if conflict := driver.conflict():
            raise AccelsweepError(conflict)


@contextlib.contextmanager
def lock_sweep(folder: SweepFolder, *, cancel_old: bool = False) -> Iterator[HeldLock]:
    """Act as the driver of this sweep inside the with-block. Raises AccelsweepError if there is another driver.

    If `cancel_old` is set, the other driver is ended first, as are executors on this machine that a dead driver left
    behind. Raises InputError if the sweep belongs to another user and is not writable.
    """
    refuse_unwritable(folder)
    if cancel_old:
        end_earlier_driver(folder)
    lock = acquire(folder.driver_file("lock"), "driver")
    if isinstance(lock, LockOwner):
        remote = f" (a driver on another host is presumed dead after {STALE_AFTER_SECONDS:.0f} s without a heartbeat)"
        raise AccelsweepError(
            f"sweep {folder.name!r} is already being run by process {lock.pid} on {lock.host} since {lock.since}"
            f"{remote if owner_is_alive(lock) is None else ''}. Wait for it (accelsweep status {folder.name}), end it "
            "with --cancel-old, or choose another --name"
        )
    try:
        _refuse_background_driver(folder)
        yield lock
    finally:
        lock.release()


def end_earlier_driver(folder: SweepFolder) -> None:
    """End the sweep's driver as Ctrl-C would, then its executors on this machine; finished runs are kept."""
    for background in background_drivers(folder):
        if background.conflict():
            background.end(warn, GRACE_SECONDS)
    if (driver := active_driver(folder)) is not None:
        if owner_is_alive(driver) is None:
            raise AccelsweepError(
                f"sweep {folder.name!r} is being run on {driver.host}; --cancel-old only works on the same machine. On "
                f"{driver.host}: kill -INT {driver.pid} (kill {driver.pid} if a script started it in the background)"
            )
        # A script's background process ignores SIGINT. SIGTERM leaves the jobs of a background driver running.
        ignores_sigint = linux.handles_signal(driver.pid, signal.SIGINT) is False
        first = signal.SIGTERM if ignores_sigint else signal.SIGINT
        end_holder(driver, first, warn, kill_after_seconds=GRACE_SECONDS)
    end_executors(folder, warn)


def clear_leftovers(folder: SweepFolder, say: Callable[[str], None]) -> None:
    """Clear leftovers of earlier commands that Snakemake must not see; `say` receives messages for the user.

    Removes halt files and the stop file of an exhausted time budget, sets aside anything that occupies the path of a
    file, resets modification times that lie in the future, and has features restore what they need.
    """
    for unexpected in set_unexpected_files_aside(folder):
        say(f"warning: {unexpected}")
    for restore in registry.loaded("before_measuring"):
        for message in restore(folder):
            say(f"warning: {message}")
    folder.stop.unlink(missing_ok=True)
    remove_halts(folder)
    for line in clock_warnings(folder, clamp_sweep_times(folder)):
        say(line)


def refuse_unwritable(folder: SweepFolder) -> None:
    """Raise InputError if files that a command rewrites are not writable, such as in another user's sweep.

    Snakemake would only notice after the last run. On a read-only disk the first write fails anyway.
    """
    if not folder.root.is_dir() or os.statvfs(folder.root).f_flag & os.ST_RDONLY:
        return
    closed = [path for path in _rewritten_files(folder) if not os.access(path, os.W_OK)]
    if not closed:
        return
    owner = closed[0].stat().st_uid
    writable = [folder.root, folder.report, folder.home / ".snakemake", *folder.home.glob("mlflow.db")]
    places = shlex.join(str(path.relative_to(folder.home)) for path in writable if path.exists())
    others = f" (and {len(closed) - 1} more)" if len(closed) > 1 else ""
    problem = f"you may not write to {closed[0].relative_to(folder.home)}{others}"
    if owner == os.getuid():
        raise InputError(f"{problem}: chmod -R u+w {places}")
    try:
        name = pwd.getpwuid(owner).pw_name
    except KeyError:
        name = f"user {owner}"
    raise InputError(
        f"{problem}, which belong{'' if others else 's'} to {name}. To share a sweep within a group, have them run "
        f"`chmod -R g+w {places}`, and have everyone set `umask 002` before measuring; or use another sweep "
        "name (--name)"
    )


def _rewritten_files(folder: SweepFolder) -> Iterator[Path]:
    """Yield the folders and files of a sweep that the next command changes; files of finished runs never change."""
    for place in (folder.root, folder.report, folder.home / ".snakemake"):
        if place.is_dir():
            yield place
            yield from (path for path in sorted(place.iterdir()) if not path.is_symlink())
    yield from sorted(folder.root.glob("blocks/*.json"))
