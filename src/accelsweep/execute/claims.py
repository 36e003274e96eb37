"""Who works on a block: a file beside it, so that a second supervisor waits for the first and never runs beside it.

On one host a claim lives as long as its process. On another host it lives as long as its file is touched: a supervisor
does so every `BEAT_SECONDS`, and a watcher needs no clock that agrees with the other's. A job that Slurm requeued takes
over from its own earlier self. On one host takeovers are serialised by a lock on a node-local path.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import signal
import socket
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil

from accelsweep.core.documents import sha256_text
from accelsweep.core.errors import AccelsweepError, DamagedFile
from accelsweep.core.folders import SweepFolder
from accelsweep.core.plans import Claim
from accelsweep.execute.leases import lease_folder
from accelsweep.execute.records import now
from accelsweep.execute.signals import Interrupted, Pause

BEAT_SECONDS = 20.0
SILENCE_SECONDS = 5 * BEAT_SECONDS
"""A claim of another host that was not touched for so long is dead."""

_LOOK_SECONDS = 0.5
_SAME_START_SECONDS = 5.0  # psutil derives start times from the boot time, which moves a little with the clock
_CANCEL_SECONDS = 60.0


class BlockClaim:
    """The claim of this process on a block, while it holds it."""

    def __init__(self, path: Path, claim: Claim) -> None:
        self._path = path
        self._claim = claim
        self._beaten = time.monotonic()

    def running(self, run: str | None) -> None:
        """Say which run is being measured now."""
        self._claim = self._claim.model_copy(update={"run": run, "run_since": now() if run else None})
        self._claim.write(self._path)

    def beat(self) -> None:
        """Touch the file if it is time to; cheap enough to be called once a second."""
        if time.monotonic() - self._beaten >= BEAT_SECONDS:
            self._beaten = time.monotonic()
            with contextlib.suppress(FileNotFoundError):
                os.utime(self._path)

    def release(self) -> None:
        """Take the claim away."""
        self._path.unlink(missing_ok=True)


@contextlib.contextmanager
def claimed(
    folder: SweepFolder, block: str, pause: Pause, say: Callable[[str], None], *, cancel_old: bool = False
) -> Iterator[BlockClaim]:
    """Hold the claim on `block` for the length of the with-block; wait for a living holder, or end it (`cancel_old`).

    Raises Interrupted if `pause(seconds)` returns True, AccelsweepError if a holder cannot be ended from here.
    """
    path = folder.claim(block)
    watch = _Watch(path)
    told = asked_at = None
    while True:
        with _takeover_lock(path):
            holder = watch.living_holder()
            if holder is None:
                claim = BlockClaim(path, _mine(block))
                claim.running(None)
                break
        if cancel_old and (asked_at is None or time.monotonic() > asked_at + _CANCEL_SECONDS):
            _cancel(holder, signal.SIGTERM if asked_at is None else signal.SIGKILL, say)
            asked_at = time.monotonic()
        elif not cancel_old and told != holder.pid:
            where = f"process {holder.pid} on {holder.host} since {holder.since}"
            say(f"block {block} is being run by {where}; waiting for it")
            told = holder.pid
        if pause(_LOOK_SECONDS):
            raise Interrupted
    try:
        yield claim
    finally:
        claim.release()


def read_claim(path: Path) -> Claim | None:
    """Return the claim in the file at `path`; None where there is none, or none that can be read."""
    try:
        return Claim.read(path)
    except (FileNotFoundError, DamagedFile):
        return None  # a claim is renamed into place whole: a damaged one is nobody's


def alive(claim: Claim) -> bool | None:
    """Return whether the claim's process lives; None if it is on another host, where this cannot be asked."""
    if claim.host != socket.gethostname():
        return None
    try:
        process = psutil.Process(claim.pid)
        same = abs(process.create_time() - claim.process_started) < _SAME_START_SECONDS
        return same and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


class _Watch:
    """Looks at a claim again and again, and remembers when it last changed."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._seen: tuple[int, int] | None = None
        self._seen_at = 0.0

    def living_holder(self) -> Claim | None:
        claim = read_claim(self._path)
        if claim is None or _earlier_self(claim):
            return None
        here = alive(claim)
        if here is not None:
            return claim if here and claim.pid != os.getpid() else None
        beat = self._path.stat() if self._path.exists() else None
        if beat is not None and (beat.st_ino, beat.st_mtime_ns) != self._seen:
            self._seen, self._seen_at = (beat.st_ino, beat.st_mtime_ns), time.monotonic()
        return claim if time.monotonic() - self._seen_at < SILENCE_SECONDS else None


def _earlier_self(claim: Claim) -> bool:
    job = os.environ.get("SLURM_JOB_ID")
    return job is not None and claim.job == job and claim.restarts < _restarts()


def _restarts() -> int:
    count = os.environ.get("SLURM_RESTART_COUNT", "0")
    return int(count) if count.isdigit() else 0


def _mine(block: str) -> Claim:
    return Claim(
        block=block,
        host=socket.gethostname(),
        pid=os.getpid(),
        process_started=psutil.Process().create_time(),
        job=os.environ.get("SLURM_JOB_ID"),
        restarts=_restarts(),
        since=now(),
    )


def end_holder(
    claim: Claim, first: signal.Signals, say: Callable[[str], None], *, patience_seconds: float = _CANCEL_SECONDS
) -> None:
    """End a claim's process on this host: signal `first`, SIGKILL after `patience_seconds`; return when it is gone."""
    for number, patience in ((first, patience_seconds), (signal.SIGKILL, _CANCEL_SECONDS)):
        if not alive(claim):
            return
        _cancel(claim, number, say)
        deadline = time.monotonic() + patience
        while alive(claim) and time.monotonic() < deadline:
            time.sleep(_LOOK_SECONDS / 5)
    if alive(claim):
        raise AccelsweepError(f"process {claim.pid} works on {claim.block} and cannot be ended; end it by hand")


def end_supervisors(folder: SweepFolder, say: Callable[[str], None]) -> None:
    """End whoever works on a block of the sweep on this host; name those on other hosts, which are waited for."""
    for path in sorted(folder.root.glob("blocks/*.claim.json")):
        claim = read_claim(path)
        if claim is None:
            continue
        if alive(claim) is None:
            say(f"{_elsewhere(claim)}; until then it is waited for")
        else:
            end_holder(claim, signal.SIGTERM, say)


@contextlib.contextmanager
def _takeover_lock(path: Path) -> Iterator[None]:
    name = f"claim-{sha256_text(str(path.resolve()))[:16]}"
    with open(lease_folder() / name, "wb") as file:
        fcntl.flock(file, fcntl.LOCK_EX)  # held for milliseconds
        yield


def _cancel(holder: Claim, number: signal.Signals, say: Callable[[str], None]) -> None:
    if alive(holder) is None:
        raise AccelsweepError(_elsewhere(holder))
    say(f"sending {number.name} to process {holder.pid}, which works on block {holder.block} (--cancel-old)")
    with contextlib.suppress(psutil.NoSuchProcess):
        psutil.Process(holder.pid).send_signal(number)  # psutil checks that the number was not given away


def _elsewhere(claim: Claim) -> str:
    cancel = f"scancel {claim.job}" if claim.job else f"kill {claim.pid} on {claim.host}"
    return f"block {claim.block} is being run on {claim.host}; --cancel-old works on one host: {cancel}"
