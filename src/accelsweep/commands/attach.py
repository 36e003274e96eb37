"""`accelsweep attach`: what a detached head prints, until its end. Ctrl-C leaves the head to its work."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from pathlib import Path

from accelsweep.drive.detached.handed import Handed, end_of_head, handed_head
from accelsweep.drive.detached.places import detached, place_of, ways_to_end
from accelsweep.driver.console import say
from accelsweep.driver.sweep_lock import living_head
from accelsweep.errors import EXIT_INTERRUPTED, AccelsweepError, InputError
from accelsweep.files import open_regular
from accelsweep.records.layout import SweepFolder

_READ_SECONDS = 0.5
_ASK_SECONDS = 10.0
_GONE = 3
"""So many times in a row a head has to be absent: one job may follow another one."""


def attach(home: Path, name: str) -> int:
    """Print what the detached head of this sweep has said and says, until it ends; return its exit code."""
    folder = SweepFolder(home, name)
    handed = handed_head(folder)
    if handed is None:
        raise InputError(_none(folder))
    shown = _Shown(folder)
    try:
        return shown.to_the_end()
    except KeyboardInterrupt:
        handed = handed_head(folder) or handed
        say(f"\nthe head goes on. Follow it again: accelsweep attach {name}")
        for line in _ways_to_end(handed):
            say(line)
        return EXIT_INTERRUPTED


def _ways_to_end(handed: Handed) -> list[str]:
    place, waits = place_of(handed), False
    with contextlib.suppress(AccelsweepError):
        waits = (found := place.state(handed.name)) is not None and found.waits
    return ways_to_end(place, handed.name, waits=waits)


def _none(folder: SweepFolder) -> str:
    head = living_head(folder)
    if head is not None:
        return f"the head of sweep {folder.name!r} has a terminal: it is process {head.pid} on {head.host}"
    return f"sweep {folder.name!r} has no detached head; accelsweep run ... --detach starts one"


class _Shown:
    """The head's log, shown once, and words for what happens beside it."""

    def __init__(self, folder: SweepFolder, clock: Callable[[], float] = time.monotonic) -> None:
        self._folder, self._clock = folder, clock
        self._at = 0
        self._asked_at: float | None = None
        self._absent = 0
        self._waits = ""

    def to_the_end(self) -> int:
        while True:
            ended = end_of_head(self._folder)  # before the log is read: nothing is said after that
            self._print_new()
            if ended is not None:
                return ended
            self._ask()
            if self._absent >= _GONE and end_of_head(self._folder) is None:
                raise AccelsweepError(
                    f"the detached head of {self._folder.name!r} ended without a message, so it was probably killed. "
                    f"{self._folder.head_log} has its output. The same command goes on"
                )
            time.sleep(_READ_SECONDS)

    def _print_new(self) -> None:
        try:
            with open_regular(self._folder.head_log) as log:
                log.seek(self._at)
                new = log.read()
        except FileNotFoundError:
            return
        whole = new[: new.rfind(b"\n") + 1]
        self._at += len(whole)
        for line in whole.decode("utf-8", "replace").splitlines():
            say(line)

    def _ask(self) -> None:
        """Look now and then whether the head is there, and say so where it waits."""
        if self._asked_at is not None and self._clock() - self._asked_at < _ASK_SECONDS:
            return
        self._asked_at = self._clock()
        try:
            found = detached(self._folder)
        except AccelsweepError as error:
            say(str(error))
            return
        self._absent = 0 if found else self._absent + 1
        words = found[1].words if found and found[1].waits else ""
        if words and words != self._waits:
            say(f"the head waits: {words}")
        self._waits = words
