"""The lock on a block: a second executor waits for the first one, or ends it (`--cancel-old`).

The lock file itself is implemented in `records.file_lock`.
"""

from __future__ import annotations

import contextlib
import signal
import time
from collections.abc import Callable, Iterator

import psutil

from accelsweep.errors import AccelsweepError
from accelsweep.ipc import Interrupted, Pause
from accelsweep.records.file_lock import HeldLock, acquire, live_lock, owner_is_alive
from accelsweep.records.layout import SweepFolder
from accelsweep.records.plan import LockOwner

_POLL_SECONDS = 0.5

_KILL_AFTER_SECONDS = 60.0


@contextlib.contextmanager
def block_lock(
    folder: SweepFolder, block: str, pause: Pause, say: Callable[[str], None], *, cancel_old: bool = False
) -> Iterator[HeldLock]:
    """Hold the lock on `block` inside the with-block; wait for a live holder, or end it if `cancel_old` is set.

    Raises Interrupted if `pause(seconds)` returns True, and AccelsweepError if the holder to end is on another host.
    """
    announced = signalled_at = None
    while isinstance(holder := acquire(folder.lock(block), block), LockOwner):
        if cancel_old and (signalled_at is None or time.monotonic() > signalled_at + _KILL_AFTER_SECONDS):
            _send_signal(holder, signal.SIGTERM if signalled_at is None else signal.SIGKILL, say)
            signalled_at = time.monotonic()
        elif not cancel_old and announced != holder.pid:
            where = f"process {holder.pid} on {holder.host} since {holder.since}"
            say(f"block {block} is being run by {where}; waiting for it")
            announced = holder.pid
        if pause(_POLL_SECONDS):
            raise Interrupted
    try:
        yield holder
    finally:
        holder.release()


def end_holder(
    hold: LockOwner,
    first: signal.Signals,
    say: Callable[[str], None],
    *,
    kill_after_seconds: float = _KILL_AFTER_SECONDS,
) -> None:
    """End a lock's holder on this host: send `first`, then SIGKILL after `kill_after_seconds`; wait for it to end."""
    for number, timeout in ((first, kill_after_seconds), (signal.SIGKILL, _KILL_AFTER_SECONDS)):
        if not owner_is_alive(hold):
            return
        _send_signal(hold, number, say)
        deadline = time.monotonic() + timeout
        while owner_is_alive(hold) and time.monotonic() < deadline:
            time.sleep(_POLL_SECONDS / 5)
    if owner_is_alive(hold):
        raise AccelsweepError(f"process {hold.pid} is working on {hold.block} and cannot be killed; end it by hand")


def end_executors(folder: SweepFolder, say: Callable[[str], None]) -> None:
    """End all executors of the sweep's blocks on this host; report those on other hosts, which must be waited for."""
    for path in folder.locks():
        hold = live_lock(path)
        if hold is None:
            continue
        if owner_is_alive(hold) is None:
            say(f"{_on_other_host(hold)}; waiting for it until then")
        else:
            end_holder(hold, signal.SIGTERM, say)


def _send_signal(holder: LockOwner, number: signal.Signals, say: Callable[[str], None]) -> None:
    if owner_is_alive(holder) is None:
        raise AccelsweepError(_on_other_host(holder))
    say(f"sending {number.name} to process {holder.pid}, which is working on block {holder.block} (--cancel-old)")
    with contextlib.suppress(psutil.NoSuchProcess):
        psutil.Process(holder.pid).send_signal(number)  # psutil raises if the process ID was reused


def _on_other_host(hold: LockOwner) -> str:
    cancel = f"scancel {hold.job}" if hold.job else f"kill {hold.pid} on {hold.host}"
    return f"block {hold.block} is being run on {hold.host}; --cancel-old only works on the same machine: {cancel}"
