"""The publisher as the head keeps it: a process that follows the sweep, and another one where something killed it.

A kernel without memory kills whom it likes. A sweep that runs for days must not lose its copy to that.
"""

from __future__ import annotations

import os
import sys
import time
from types import TracebackType
from typing import Self

from accelsweep.drive.console import say
from accelsweep.drive.processes import Child
from accelsweep.state.folders import SweepFolder
from accelsweep.state.tail import last_lines

PAUSE_SECONDS = 30.0
"""The least time from one start to the next: what kills a publisher may stay."""


class Publishing:
    """Copies a sweep to MLflow while it runs. A publisher that ended in words is left alone: it said why."""

    def __init__(self, folder: SweepFolder, tracking_uri: str | None) -> None:
        """`tracking_uri` is the store's address, None for the default one."""
        self._folder = folder
        self._variables = {"MLFLOW_TRACKING_URI": tracking_uri} if tracking_uri else {}
        self._child = self._follower()

    def look(self) -> None:
        """Start another publisher where a signal has ended the last one."""
        if time.monotonic() - self._started >= PAUSE_SECONDS and self._killed():
            self._child = self._follower()

    def interrupt(self) -> None:
        """Let the publisher copy what there is, and end."""
        self._child.finish()

    def finish(self) -> None:
        """Let the publisher copy all of a sweep that has ended, and end; say what to do where it could not."""
        self._child.finish()
        if self._killed():
            self._child = self._start()
        if self._child.code != 0:
            said = [line for line in last_lines(self._child.log) if line.strip()]
            why = said[-1].removeprefix("error: ") if said else f"the publisher ended with {self._child.code}"
            say(f"MLflow has not got everything ({why}). To catch up: accelsweep publish {self._folder.name}", err=True)

    def _killed(self) -> bool:
        return not self._child.running() and self._child.code < 0

    def _follower(self) -> Child:
        self._started = time.monotonic()
        return self._start("--follow", "--until-pid", str(os.getpid()))

    def _start(self, *options: str) -> Child:
        command = [sys.executable, "-m", "accelsweep.publish", str(self._folder.root), *options]
        return Child.start(command, cwd=self._folder.home, log=self._folder.publish_log, variables=self._variables)

    def __enter__(self) -> Self:
        """Return the publishing; leaving the block ends the publisher if it still runs."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._child.__exit__(kind, error, trace)
