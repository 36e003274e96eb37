"""Whose claims are held by the living: one rule for heads and for supervisors, for who waits and for who only looks on.

On its own host a claim lives as long as its process. From another host it lives as long as its file is touched, which
its holder does every `BEAT_SECONDS`; how long ago that was is told by the clock of the file system, so that the
machines' own may differ.
"""

from __future__ import annotations

import socket
from pathlib import Path

import psutil

from accelsweep.core.errors import DamagedFile
from accelsweep.core.plans import Claim
from accelsweep.state.leftovers import now_on

BEAT_SECONDS = 20.0
SILENCE_SECONDS = 5 * BEAT_SECONDS
"""A claim of another host that was not touched for so long is dead."""

_SAME_START_SECONDS = 5.0  # psutil derives start times from the boot time, which moves a little with the clock


def read_claim(path: Path) -> Claim | None:
    """Return the claim in the file at `path`; None where there is none, or none that can be read."""
    try:
        return Claim.read(path)
    except (FileNotFoundError, DamagedFile):
        return None  # a claim is put into its place whole: a damaged one is nobody's


def living_claim(path: Path) -> Claim | None:
    """Return the claim in the file at `path` if its holder lives, else None."""
    claim = read_claim(path)
    return claim if claim is not None and living(claim, path) else None


def living(claim: Claim, path: Path) -> bool:
    """Return whether the holder of `claim`, which stands at `path`, lives."""
    here = alive(claim)
    return _heard_of(path) if here is None else here


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


def _heard_of(path: Path) -> bool:
    try:
        beaten = path.stat().st_mtime  # fresh on NFS too: the file was opened just now
    except FileNotFoundError:
        return False
    now = now_on(path.parent)
    return now is None or now - beaten < SILENCE_SECONDS
