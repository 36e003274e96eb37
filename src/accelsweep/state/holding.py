"""The way a hold is taken, renewed and given back, for a sweep's head and for a block's supervisor alike.

A hold is put into its place by `put_in_place`, which fails if another hold is there. So one of many takers comes first,
on any machines. Nothing is locked on the sweep's own file system. Takers on one machine look in turn, by a lock on a
node-local path. Two machines may clear the same dead hold away in the same millisecond. Then a third may lose its new
hold. It finds that out when it next beats, and stops.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import socket
import time
from collections.abc import Iterator
from pathlib import Path

import psutil

from accelsweep.base.documents import clear_place, put_in_place, sha256_text
from accelsweep.base.errors import AccelsweepError
from accelsweep.core.planned.plans import Hold
from accelsweep.core.recorded.record import now
from accelsweep.engines.this_job import this_job
from accelsweep.machine.locks import lease_folder, lock
from accelsweep.state.living import BEAT_SECONDS, DEAD_AFTER_SECONDS, living, read_hold


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
        put_in_place(own, path)
    except FileExistsError:
        return False
    finally:
        own.unlink(missing_ok=True)
    return True


def _clear(path: Path, dead: Hold | None) -> None:
    """Take a dead hold away, or one that cannot be read; what another put there in the meantime is put back."""
    if clear_place(path) is not None or not os.path.lexists(path):
        return
    aside = _beside(path)
    with contextlib.suppress(FileNotFoundError, FileExistsError):
        path.rename(aside)
        if read_hold(aside) != dead:
            put_in_place(aside, path)
    aside.unlink(missing_ok=True)


def _beside(path: Path) -> Path:
    """Return a name that no other process uses, and that is swept up if we are killed."""
    return path.with_name(f".{path.name}.{secrets.token_hex(4)}.part")
