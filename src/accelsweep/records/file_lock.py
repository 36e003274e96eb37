"""Lock files of a sweep's driver and of a block's executor: acquire, heartbeat, release.

`create_exclusively` puts a lock file into place, so exactly one of several contenders wins, even across machines.
Contenders on the same machine also take turns by means of a node-local lock; the sweep's own file system does not need
to support locking.
If two machines remove the same stale lock in the same millisecond, a third machine may lose its new lock. That
machine detects the loss at its next heartbeat and stops.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import socket
import tempfile
import time
from pathlib import Path

import psutil

from accelsweep.errors import AccelsweepError, DamagedFile
from accelsweep.files import create_exclusively, lease_folder, lock, set_aside_non_file
from accelsweep.plain_json import sha256_text
from accelsweep.records.layout import SweepFolder
from accelsweep.records.plan import LockOwner
from accelsweep.records.run_record import now
from accelsweep.schedulers.select import this_job

HEARTBEAT_SECONDS = 20.0

STALE_AFTER_SECONDS = 5 * HEARTBEAT_SECONDS
"""A lock held on another host is stale if it has not been touched for this long."""

_SAME_START_SECONDS = 5.0  # psutil derives start times from the boot time, which drifts a little with the clock


def read_lock(path: Path) -> LockOwner | None:
    """Return the owner recorded in the lock file at `path`; None if there is no readable lock file."""
    try:
        return LockOwner.read(path)
    except (FileNotFoundError, DamagedFile):
        return None  # lock files only ever appear complete, so a damaged one has no owner


def live_lock(path: Path) -> LockOwner | None:
    """Return the owner of the lock at `path` if it is alive, else None."""
    owner = read_lock(path)
    return owner if owner is not None and is_live(owner, path) else None


def driver_started_at(folder: SweepFolder) -> str | None:
    """Return the start time (UTC, ISO 8601) of the command that is driving the sweep, or None if there is none."""
    driver = live_lock(folder.driver_file("lock"))
    return None if driver is None else driver.since


def is_live(owner: LockOwner, path: Path) -> bool:
    """Return whether the `owner` of the lock at `path` is alive, based on its process or, if remote, its heartbeat."""
    if (alive := owner_is_alive(owner)) is not None:
        return alive
    try:
        touched = path.stat().st_mtime  # up to date even on NFS, because the file was just opened
    except FileNotFoundError:
        return False
    now = disk_time(path.parent)
    return now is None or abs(now - touched) < STALE_AFTER_SECONDS  # a time far in the future: a clock was set back


def owner_is_alive(owner: LockOwner) -> bool | None:
    """Return whether the owner's process is alive; None on another host, where that is unknown."""
    if owner.host != socket.gethostname():
        return None
    try:
        process = psutil.Process(owner.pid)
        is_same = abs(process.create_time() - owner.process_started) < _SAME_START_SECONDS
        return is_same and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def disk_time(folder: Path) -> float | None:
    """Return the time (Unix seconds) on the clock that timestamps files in `folder`; None if the folder is read-only.

    On a shared file system, that is the server's clock, which may differ widely from the machine's.
    """
    try:
        with tempfile.NamedTemporaryFile(dir=folder, prefix=".clock.json.", suffix=".part") as probe:
            return os.fstat(probe.fileno()).st_mtime
    except OSError:
        return None


class HeldLock:
    """A lock that this process has acquired. All methods but `release` raise AccelsweepError once the lock is lost."""

    def __init__(self, path: Path, owner: LockOwner) -> None:
        """Do not call directly; use `acquire`."""
        self._path, self._owner = path, owner
        self._last_heartbeat = time.monotonic()

    def set_run(self, run: str, since: str) -> None:
        """Store the name of the run being measured and its start time, as they will appear in the run's record."""
        self._note_run(run, since)

    def clear_run(self) -> None:
        """Record that no run is being measured."""
        self._note_run(None, None)

    def set_waiting_for(self, reason: str) -> None:
        """Record what the next run waits for, until `set_run` or `clear_run`."""
        self._note_run(None, None, reason)

    def _note_run(self, run: str | None, since: str | None, waiting_for: str | None = None) -> None:
        self.confirm()
        changes = {"run": run, "run_since": since, "waiting_for": waiting_for}
        self._owner = self._owner.model_copy(update=changes)
        self._owner.write(self._path)

    def heartbeat(self) -> None:
        """Touch the lock file if a heartbeat is due; cheap enough to call every second."""
        if time.monotonic() - self._last_heartbeat >= HEARTBEAT_SECONDS:
            self._last_heartbeat = time.monotonic()
            self.confirm()
            with contextlib.suppress(FileNotFoundError):
                os.utime(self._path)

    def confirm(self) -> None:
        """Check that the lock is still ours, and put it back if it was merely removed."""
        while (current := read_lock(self._path)) is None:
            _remove(self._path, None)
            _put_into_place(self._path, self._owner)
        if _identity(current) != _identity(self._owner):
            what = "this sweep" if current.block == "driver" else f"block {current.block}"
            raise AccelsweepError(
                f"process {current.pid} on {current.host} took over {what}: this process sent no heartbeat for more "
                f"than {STALE_AFTER_SECONDS:.0f} s (a suspended machine, a lost file system). The work continues there"
            )

    def release(self) -> None:
        """Remove the lock, if it is still ours."""
        current = read_lock(self._path)
        if current is not None and _identity(current) == _identity(self._owner):
            self._path.unlink(missing_ok=True)


def acquire(path: Path, block: str) -> HeldLock | LockOwner:
    """Acquire the lock on `block`, stored at `path`; if its current owner is alive, return that owner instead.

    A requeued Slurm job takes over the lock that it held before it was requeued, however recent the last heartbeat is.
    """
    job = this_job()
    owner = LockOwner(
        block=block,
        host=socket.gethostname(),
        pid=os.getpid(),
        process_started=psutil.Process().create_time(),
        job=job.number if job else None,
        restarts=job.restarts if job else 0,
        since=now(),
    )
    with open(lease_folder() / f"lock-{sha256_text(str(path.resolve()))[:16]}", "wb") as file:
        lock(file)  # held for milliseconds
        while True:
            current = read_lock(path)
            if current is not None and not _succeeds(owner, current) and is_live(current, path):
                return current
            _remove(path, current)
            if _put_into_place(path, owner):
                return HeldLock(path, owner)


def _succeeds(owner: LockOwner, current: LockOwner) -> bool:
    return owner.job is not None and owner.job == current.job and owner.restarts > current.restarts


def _identity(owner: LockOwner) -> tuple[str, int, float, int]:
    return owner.host, owner.pid, owner.process_started, owner.restarts


def _put_into_place(path: Path, owner: LockOwner) -> bool:
    temporary = _temporary(path)
    owner.write(temporary)
    try:
        create_exclusively(temporary, path)
    except FileExistsError:
        return False
    finally:
        temporary.unlink(missing_ok=True)
    return True


def _remove(path: Path, stale: LockOwner | None) -> None:
    """Remove a stale or unreadable lock; restore it if another process has replaced it in the meantime."""
    if set_aside_non_file(path) is not None or not os.path.lexists(path):
        return
    temporary = _temporary(path)
    with contextlib.suppress(FileNotFoundError, FileExistsError):
        path.rename(temporary)
        if read_lock(temporary) != stale:
            create_exclusively(temporary, path)
    temporary.unlink(missing_ok=True)


def _temporary(path: Path) -> Path:
    """Return a path that no other process uses; `cleanup` removes the file there if this process is killed."""
    return path.with_name(f".{path.name}.{secrets.token_hex(4)}.part")
