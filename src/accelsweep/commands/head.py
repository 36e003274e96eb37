"""The head of a sweep: the one process that drives it. Its claim tells `status`, and a second head, who that is.

On one machine a claim lives as long as its process. From another machine that sees the same files it lives as long as
it is touched; how long ago that was is told by the clock of the file system, so that the machines' own may differ.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import signal
import socket
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import psutil
import typer

from accelsweep.core.documents import sha256_text
from accelsweep.core.errors import AccelsweepError
from accelsweep.core.folders import SweepFolder
from accelsweep.core.plans import Claim
from accelsweep.execute.claims import (
    BEAT_SECONDS,
    SILENCE_SECONDS,
    alive,
    end_holder,
    end_supervisors,
    read_claim,
)
from accelsweep.execute.leftovers import now_on

PATIENCE_SECONDS = 90.0
"""How long an old head may take to end after Ctrl-C: it waits for its own children, and then for nothing more."""


def living_head(folder: SweepFolder) -> Claim | None:
    """Return the claim of the head that drives this sweep now, from this machine or from another one, or None."""
    path = _path(folder)
    claim = read_claim(path)
    if claim is None or (here := alive(claim)) is False:
        return None
    return claim if here or _beats(path) else None


def _beats(path: Path) -> bool:
    try:
        beaten = path.stat().st_mtime
    except FileNotFoundError:
        return False
    now = now_on(path.parent)
    return now is None or now - beaten < SILENCE_SECONDS


class Head:
    """What the head of a sweep does with its claim while it holds it."""

    def __init__(self, path: Path, claim: Claim) -> None:
        """Use `claimed`."""
        self._path, self._claim = path, claim
        self._beaten = time.monotonic()

    def beat(self) -> None:
        """Touch the claim if it is time to. Raises AccelsweepError if another head took over while we were silent."""
        if time.monotonic() - self._beaten < BEAT_SECONDS:
            return
        self._beaten = time.monotonic()
        other = read_claim(self._path)
        if other is not None and other != self._claim:
            raise AccelsweepError(
                f"process {other.pid} on {other.host} took this sweep over while this head was not heard of for more "
                f"than {SILENCE_SECONDS:.0f} s (a suspended machine, a lost file system); it goes on there"
            )
        if other is None:
            self._claim.write(self._path)
        else:
            os.utime(self._path)

    def release(self) -> None:
        """Take the claim away, if it is still ours."""
        if read_claim(self._path) == self._claim:
            self._path.unlink(missing_ok=True)


@contextlib.contextmanager
def claimed(folder: SweepFolder, *, cancel_old: bool = False) -> Iterator[Head]:
    """Be the head of this sweep for the length of the block. Raises AccelsweepError if another head lives.

    With `cancel_old` another head, and every supervisor that a dead one left behind on this machine, is ended first.
    """
    if cancel_old:
        end_old(folder)
    claim = Claim(
        block="head",
        host=socket.gethostname(),
        pid=os.getpid(),
        process_started=psutil.Process().create_time(),
        since=datetime.now(UTC).isoformat(timespec="seconds"),
    )
    path = _path(folder)
    with _one_at_a_time(path.parent):
        _take(path, claim, folder)
    head = Head(path, claim)
    try:
        yield head
    finally:
        head.release()


@contextlib.contextmanager
def _one_at_a_time(folder: Path) -> Iterator[None]:
    """Let heads of one machine look at the claim in turn; a file system without such locks leaves it to `beat`."""
    folder.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        with contextlib.suppress(OSError):
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def _take(path: Path, claim: Claim, folder: SweepFolder) -> None:
    while not _took(path, claim):
        standing = read_claim(path)
        if other := living_head(folder):
            raise AccelsweepError(
                f"sweep {folder.name!r} is already being run by process {other.pid} on {other.host} since "
                f"{other.since}{_elsewhere(other)}; wait for it (accelsweep status {folder.name}), end it with "
                "--cancel-old, or choose another --name"
            )
        _clear(path, standing)


def _elsewhere(claim: Claim) -> str:
    if alive(claim) is not None:
        return ""
    return f" (a head on another machine is taken for dead after {SILENCE_SECONDS:.0f} s of silence)"


def _took(path: Path, claim: Claim) -> bool:
    """Put the claim in its place unless one stands there; of two heads at once, on any machines, one comes first."""
    own = _aside(path, claim)
    claim.write(own)
    try:
        path.hardlink_to(own)
    except FileExistsError:
        return False
    finally:
        own.unlink(missing_ok=True)
    return True


def _clear(path: Path, dead: Claim | None) -> None:
    """Take a dead head's claim away; what another head put there in the meantime is put back."""
    aside = _aside(path, dead)
    with contextlib.suppress(FileNotFoundError, FileExistsError):
        path.rename(aside)
        if read_claim(aside) != dead:
            path.hardlink_to(aside)
    aside.unlink(missing_ok=True)


def _aside(path: Path, claim: Claim | None) -> Path:
    """Return a name beside the claim that no other head uses now, and that is swept up if we are killed."""
    who = f"{socket.gethostname()} {os.getpid()} {claim and claim.since}"
    return path.with_name(f".{path.name}.{sha256_text(who)[:8]}.part")


def end_old(folder: SweepFolder) -> None:
    """End the sweep's living head as Ctrl-C would, then the supervisors on this machine; finished runs are kept."""

    def say(line: str) -> None:
        typer.echo(line, err=True)

    head = living_head(folder)
    if head is not None and alive(head) is None:
        raise AccelsweepError(
            f"sweep {folder.name!r} is being run on {head.host}; --cancel-old works on one machine: "
            f"kill -INT {head.pid} on {head.host}"
        )
    if head is not None:
        end_holder(head, signal.SIGINT, say, patience_seconds=PATIENCE_SECONDS)
    end_supervisors(folder, say)


def _path(folder: SweepFolder) -> Path:
    return folder.root / "head.claim.json"
