"""The way a hold is taken, renewed and given back, for a sweep's head and for a block's supervisor alike.

A hold is put into its place by `create_exclusively`, which fails if there is one. So one of many takers comes first,
on any machines. Nothing is locked on the sweep's own file system. Takers on one machine look in turn, by a lock on a
node-local path. Two machines may clear the same dead hold away in the same millisecond. Then a third may lose its new
hold. It finds that out when it next beats, and stops.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import socket
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import psutil

from accelsweep.errors import AccelsweepError, DamagedFile
from accelsweep.files import create_exclusively, lease_folder, lock, set_aside_non_file
from accelsweep.plain_json import sha256_text
from accelsweep.records.layout import SweepFolder
from accelsweep.records.plan import Hold
from accelsweep.records.run_record import now
from accelsweep.schedulers.select import this_job

# Holds with a living holder: one rule for heads and for supervisors, for waiting and for showing the status.

BEAT_SECONDS = 20.0

DEAD_AFTER_SECONDS = 5 * BEAT_SECONDS
"""A hold of another host that was not touched for so long is dead."""

_SAME_START_SECONDS = 5.0  # psutil derives start times from the boot time, which moves a little with the clock


def read_hold(path: Path) -> Hold | None:
    """Return the hold in the file at `path`; None where there is none, or none that can be read."""
    try:
        return Hold.read(path)
    except (FileNotFoundError, DamagedFile):
        return None  # a hold is put into its place whole: a damaged one has no holder


def living_hold(path: Path) -> Hold | None:
    """Return the hold in the file at `path` if its holder lives, else None."""
    hold = read_hold(path)
    return hold if hold is not None and living(hold, path) else None


def command_began(folder: SweepFolder) -> str | None:
    """Return when the command that drives the sweep now began (UTC, ISO 8601); None where nobody drives it."""
    head = living_hold(folder.of_head("claim"))
    return None if head is None else head.since


def living(hold: Hold, path: Path) -> bool:
    """Return whether the holder of `hold`, which stands at `path`, lives."""
    here = alive(hold)
    return _heard_of(path) if here is None else here


def alive(hold: Hold) -> bool | None:
    """Return whether the hold's process lives; None if it is on another host, where this cannot be asked."""
    if hold.host != socket.gethostname():
        return None
    try:
        process = psutil.Process(hold.pid)
        same = abs(process.create_time() - hold.process_started) < _SAME_START_SECONDS
        return same and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def _heard_of(path: Path) -> bool:
    try:
        beaten = path.stat().st_mtime  # fresh on NFS too: the file was opened just now
    except FileNotFoundError:
        return False
    now = now_on(path.parent)
    return now is None or abs(now - beaten) < DEAD_AFTER_SECONDS  # beaten in the future: before a clock was set back


def now_on(folder: Path) -> float | None:
    """Return the time by the clock that stamps the files of `folder`, in seconds since 1970; None if it is read-only.

    On a shared file system that is the server's clock, which may differ much from the machine's own.
    """
    try:
        with tempfile.NamedTemporaryFile(dir=folder, prefix=".clock.json.", suffix=".part") as made:
            return os.fstat(made.fileno()).st_mtime
    except OSError:
        return None


class Holder:
    """The methods of a hold for its holder. Every one but `release` raises AccelsweepError if the hold is lost."""

    def __init__(self, path: Path, hold: Hold) -> None:
        """Use `take`."""
        self._path, self._hold = path, hold
        self._beaten = time.monotonic()

    def running(self, run: str, since: str) -> None:
        """Note the run that is being measured, and its start, as its record will state it."""
        self._say(run, since)

    def idle(self) -> None:
        """Note that no run is being measured now."""
        self._say(None, None)

    def _say(self, run: str | None, since: str | None) -> None:
        self.confirm()
        self._hold = self._hold.model_copy(update={"run": run, "run_since": since})
        self._hold.write(self._path)

    def beat(self) -> None:
        """Touch the file if it is time to; cheap enough to be called once a second."""
        if time.monotonic() - self._beaten >= BEAT_SECONDS:
            self._beaten = time.monotonic()
            self.confirm()
            with contextlib.suppress(FileNotFoundError):
                os.utime(self._path)

    def confirm(self) -> None:
        """Make sure that the hold is still ours, and put it back if it was only removed."""
        while (standing := read_hold(self._path)) is None:
            _clear(self._path, None)
            _placed(self._path, self._hold)
        if _holder(standing) != _holder(self._hold):
            what = "this sweep" if standing.block == "head" else f"block {standing.block}"
            raise AccelsweepError(
                f"process {standing.pid} on {standing.host} took {what} over: this process was silent for more than "
                f"{DEAD_AFTER_SECONDS:.0f} s (a suspended machine, a lost file system). It goes on there"
            )

    def release(self) -> None:
        """Remove the hold, if it is still ours."""
        standing = read_hold(self._path)
        if standing is not None and _holder(standing) == _holder(self._hold):
            self._path.unlink(missing_ok=True)


def take(path: Path, block: str) -> Holder | Hold:
    """Put a hold of this process on `block` at `path`, unless a living one is there, which is returned.

    A Slurm job that was queued again takes over the hold of its own earlier start, however old the last beat is.
    """
    hold = _of_this_process(block)
    with _in_turn(path):
        while True:
            standing = read_hold(path)
            if standing is not None and not _succeeds(hold, standing) and living(standing, path):
                return standing
            _clear(path, standing)
            if _placed(path, hold):
                return Holder(path, hold)


def _of_this_process(block: str) -> Hold:
    job = this_job()
    return Hold(
        block=block,
        host=socket.gethostname(),
        pid=os.getpid(),
        process_started=psutil.Process().create_time(),
        job=job.number if job else None,
        restarts=job.restarts if job else 0,
        since=now(),
    )


def _succeeds(hold: Hold, standing: Hold) -> bool:
    return hold.job is not None and hold.job == standing.job and hold.restarts > standing.restarts


def _holder(hold: Hold) -> tuple[str, int, float, int]:
    return hold.host, hold.pid, hold.process_started, hold.restarts


@contextlib.contextmanager
def _in_turn(path: Path) -> Iterator[None]:
    name = f"claim-{sha256_text(str(path.resolve()))[:16]}"
    with open(lease_folder() / name, "wb") as file:
        lock(file)  # held for milliseconds
        yield


def _placed(path: Path, hold: Hold) -> bool:
    own = _beside(path)
    hold.write(own)
    try:
        create_exclusively(own, path)
    except FileExistsError:
        return False
    finally:
        own.unlink(missing_ok=True)
    return True


def _clear(path: Path, dead: Hold | None) -> None:
    """Take a dead hold away, or one that cannot be read; what another put there in the meantime is put back."""
    if set_aside_non_file(path) is not None or not os.path.lexists(path):
        return
    aside = _beside(path)
    with contextlib.suppress(FileNotFoundError, FileExistsError):
        path.rename(aside)
        if read_hold(aside) != dead:
            create_exclusively(aside, path)
    aside.unlink(missing_ok=True)


def _beside(path: Path) -> Path:
    """Return a name that no other process uses, and that is swept up if we are killed."""
    return path.with_name(f".{path.name}.{secrets.token_hex(4)}.part")
