"""The hold on a block: a file beside it, so that a second supervisor waits for the first and never runs beside it.

`holding` takes and keeps holds, and `living` tells which ones count. Here a supervisor waits for another one, or ends
it.
"""

from __future__ import annotations

import contextlib
import signal
import time
from collections.abc import Callable, Iterator

import psutil

from accelsweep.errors import AccelsweepError
from accelsweep.executor.ipc import Interrupted, Pause
from accelsweep.records.file_lock import Holder, alive, living_hold, take
from accelsweep.records.layout import SweepFolder
from accelsweep.records.plan import Hold

_LOOK_SECONDS = 0.5

_CANCEL_SECONDS = 60.0


@contextlib.contextmanager
def held(
    folder: SweepFolder, block: str, pause: Pause, say: Callable[[str], None], *, cancel_old: bool = False
) -> Iterator[Holder]:
    """Take the hold on `block` for the length of the with-block; wait for a living holder, or end it (`cancel_old`).

    Raises Interrupted if `pause(seconds)` returns True, AccelsweepError if a holder cannot be ended from here.
    """
    told = asked_at = None
    while isinstance(holder := take(folder.hold(block), block), Hold):
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
        yield holder
    finally:
        holder.release()


def end_holder(
    hold: Hold, first: signal.Signals, say: Callable[[str], None], *, patience_seconds: float = _CANCEL_SECONDS
) -> None:
    """End a hold's process on this host: signal `first`, SIGKILL after `patience_seconds`; return when it is gone."""
    for number, patience in ((first, patience_seconds), (signal.SIGKILL, _CANCEL_SECONDS)):
        if not alive(hold):
            return
        _cancel(hold, number, say)
        deadline = time.monotonic() + patience
        while alive(hold) and time.monotonic() < deadline:
            time.sleep(_LOOK_SECONDS / 5)
    if alive(hold):
        raise AccelsweepError(f"process {hold.pid} works on {hold.block} and cannot be ended; end it by hand")


def end_supervisors(folder: SweepFolder, say: Callable[[str], None]) -> None:
    """End all supervisors of the sweep's blocks on this host; name those on other hosts, which are waited for."""
    for path in folder.holds():
        hold = living_hold(path)
        if hold is None:
            continue
        if alive(hold) is None:
            say(f"{_elsewhere(hold)}; until then it is waited for")
        else:
            end_holder(hold, signal.SIGTERM, say)


def _cancel(holder: Hold, number: signal.Signals, say: Callable[[str], None]) -> None:
    if alive(holder) is None:
        raise AccelsweepError(_elsewhere(holder))
    say(f"sending {number.name} to process {holder.pid}, which works on block {holder.block} (--cancel-old)")
    with contextlib.suppress(psutil.NoSuchProcess):
        psutil.Process(holder.pid).send_signal(number)  # psutil checks that no other process has this number now


def _elsewhere(hold: Hold) -> str:
    cancel = f"scancel {hold.job}" if hold.job else f"kill {hold.pid} on {hold.host}"
    return f"block {hold.block} is being run on {hold.host}; --cancel-old works on one machine: {cancel}"
