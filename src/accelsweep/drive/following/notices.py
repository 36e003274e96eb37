"""Notices for somebody who does not watch: at the end, at the first failure, and when nothing moves any more.

A notice that is not delivered is said on the terminal and changes nothing else.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any, Protocol

from accelsweep.drive.following.delivery import Message, Target
from accelsweep.errors import EXIT_INTERRUPTED, AccelsweepError, DamagedFile
from accelsweep.records.findings import Findings
from accelsweep.records.layout import SweepFolder
from accelsweep.redaction import masked
from accelsweep.significant_digits import count_of, escaped

STANDSTILL_SECONDS = 3600.0
"""A sweep that shows no movement for so long gets a notice."""

_LOOK_SECONDS = 30.0


class Watched(Protocol):
    """The part of a sweep's progress that notices are about."""

    done: int
    total: int
    failure: str | None
    """The first run that ended badly, in words."""

    def signs(self) -> Any:
        """Return what differs whenever anything has moved."""


class Notices:
    """All notices of one command. `folder` is the sweep that they tell of, None before its name is known."""

    def __init__(
        self,
        folder: SweepFolder | None,
        targets: Sequence[Target],
        say: Callable[[str], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`say` is told what could not be delivered."""
        self.folder, self._targets, self._say, self._clock = folder, tuple(targets), say, clock
        self._failure_told = self._standstill_told = False
        self._signs: Any = None
        self._moved_at = self._looked_at = clock()

    def look(self, progress: Watched) -> None:
        """Send what is due. Call it often: it looks at files every half minute at most, and only with a target."""
        if not self._targets:
            return
        if progress.failure is not None and not self._failure_told:
            self._failure_told = True
            self._send("failure", f"the first run failed: {progress.failure}")
        if self._clock() - self._looked_at >= _LOOK_SECONDS:
            self._looked_at = self._clock()
            self._look_for_movement(progress)

    def _look_for_movement(self, progress: Watched) -> None:
        signs = progress.signs()
        if signs != self._signs:
            self._signs, self._moved_at, self._standstill_told = signs, self._clock(), False
        elif self._clock() - self._moved_at >= STANDSTILL_SECONDS and not self._standstill_told:
            self._standstill_told = True
            minutes = round(STANDSTILL_SECONDS / 60)
            done = f"{progress.done} of {count_of(progress.total, 'run')} done"
            self._send("standstill", f"nothing has moved for {minutes} minutes, {done}: {self._status()}")

    @contextmanager
    def at_the_end(self) -> Iterator[None]:
        """Send a notice where the block ends with an error or an interruption."""
        try:
            yield
        except AccelsweepError as error:
            self._send("end", f"ended with an error: {error}")
            raise
        except KeyboardInterrupt:
            self._send("end", f"interrupted: {self._status()}")
            raise
        except Exception as error:
            self._send("end", f"ended with an error: {type(error).__name__}: {error}")
            raise

    def ended(self, code: int) -> None:
        """Send the notice of the end, after which the command exits with `code`."""
        if not self._targets or self.folder is None:
            return
        if code == EXIT_INTERRUPTED:
            self._send("end", f"interrupted: {self._status()}")
            return
        with suppress(FileNotFoundError, DamagedFile):
            findings = Findings.read(self.folder.findings)
            open_runs = sum(count for outcome, count in findings.outcomes.items() if not outcome.settled)
            runs = f"{findings.planned_runs - open_runs} of {count_of(findings.planned_runs, 'run')} settled"
            self._send("end", f"ended, {runs}. {findings.recommendation.sentence}")
            return
        self._send("end", f"ended without a report: {self._status()}")

    def _status(self) -> str:
        return f"accelsweep status {self.folder.name}" if self.folder else "before anything was planned"

    def _send(self, about: str, text: str) -> None:
        title = f"accelsweep {self.folder.name}" if self.folder else "accelsweep"
        message = Message(about, title, escaped(masked(text)))
        for target in self._targets:
            if why := target.send(message):
                self._say(f"no notice reached {target.shown}: {why}")
