"""The delivery of one notice: to a command, or to an address of a service that the library apprise knows.

Either is a process of its own with a time limit, so that no service can hold up, change or end the sweep. An address
goes to it by its standard input. Addresses hold secrets in every part (`slack://TOKEN/...`), so only their first word
is ever shown.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Protocol

from accelsweep.driver.console import warn
from accelsweep.driver.request import Request
from accelsweep.errors import EXIT_INTERRUPTED, AccelsweepError, DamagedFile, InputError
from accelsweep.features.notifications.options import COMMAND, public_form
from accelsweep.files import tail_lines
from accelsweep.records.findings import Findings
from accelsweep.records.layout import SweepFolder
from accelsweep.redaction import masked
from accelsweep.significant_digits import count_of, escaped

TIMEOUT_SECONDS = 30.0

_DELIVER = (sys.executable, "-P", "-m", "accelsweep.features.notifications.notify")

_MISSING = "apprise is not installed, which knows the services: pip install 'accelsweep[notify]', or give command:..."


@dataclass(frozen=True)
class Message:
    """A notice: `about` is `end`, `failure` or `standstill`, `title` names the sweep."""

    about: str
    title: str
    text: str


@dataclass(frozen=True)
class Target:
    """The address of notices: `command:` and a shell command, or one such as `json://host/path`."""

    address: str

    @property
    def shown(self) -> str:
        """The address as it may be shown: the command's first word, or the service."""
        return public_form(self.address)

    @property
    def command(self) -> str | None:
        """The shell command, None for an address."""
        return self.address.removeprefix(COMMAND).strip() if self.address.startswith(COMMAND) else None

    def check(self) -> None:
        """Raise InputError where no notice could ever be sent."""
        if self.command == "":
            raise InputError(
                f"--notify {COMMAND} names no command: write for example --notify 'command: mail -s done me'"
            )
        if self.command is None and (why := self._deliver({})):
            raise InputError(f"--notify {self.shown}: {why}")

    def send(self, message: Message) -> str | None:
        """Deliver `message`; return why that failed, or None."""
        if self.command is None:
            return self._deliver({"title": message.title, "text": message.text})
        about = {"ACCELSWEEP_NOTICE": f"{message.title}: {message.text}", "ACCELSWEEP_NOTICE_ABOUT": message.about}
        return _run(("/bin/sh", "-c", self.command), f"{message.title}: {message.text}\n", about)

    def _deliver(self, order: dict[str, str]) -> str | None:
        return _run(_DELIVER, json.dumps({"address": self.address, **order}), {})


def _run(command: Sequence[str], said: str, variables: dict[str, str]) -> str | None:
    """Run `command` with `said` on its standard input; return why it failed, or None."""
    with tempfile.TemporaryFile() as errors:  # no pipe: whatever the command leaves running would hold it open
        process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=errors,
            env={**os.environ, **variables},
            start_new_session=True,
        )
        try:
            process.communicate(said.encode(), timeout=TIMEOUT_SECONDS)
        except subprocess.TimeoutExpired:
            return f"it took longer than {TIMEOUT_SECONDS:g} s"
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
        last = [line.strip() for line in tail_lines(errors) if line.strip()][-1:]
    if process.returncode == 0:
        return None
    return ": ".join([f"it ended with exit code {process.returncode}", *last])


def redacted(text: str, address: str) -> str:
    """Return `text` without any part of `address` but its scheme."""
    _, _, rest = address.partition("://")
    for part in sorted(filter(None, re.split(r"[/:@?&=#]+", rest)), key=len, reverse=True):
        text = text.replace(part, "***") if len(part) > 3 else text
    return text


def main() -> int:
    """Deliver the order on the standard input by apprise; one without a text only checks the address."""
    order = json.load(sys.stdin)
    try:
        import apprise
    except ImportError:
        sys.stderr.write(f"{_MISSING}\n")
        return 2
    with apprise.LogCapture(level=apprise.logging.WARNING, fmt="%(message)s") as log:  # type: ignore[no-untyped-call]
        service = apprise.Apprise()
        if not service.add(order["address"]):
            sys.stderr.write("apprise knows no such service, or the address lacks a part\n")
            return 2
        text = order.get("text")
        if text is None or service.notify(body=text, title=order["title"], body_format=apprise.NotifyFormat.TEXT):
            return 0
        said = log.getvalue().strip().splitlines()
    sys.stderr.write(redacted(next(iter(said), "the service took no notice"), order["address"]) + "\n")
    return 1


# Notices for somebody who does not watch: at the end, at the first failure, and when nothing moves any more.

STANDSTILL_SECONDS = 3600.0
"""A sweep that shows no movement for so long gets a notice."""

_LOOK_SECONDS = 30.0


class Watched(Protocol):
    """The part of a sweep's progress that notices are about."""

    done: int
    total: int
    failure: str | None
    """The first run that ended badly, in words."""

    def activity(self) -> Any:
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

    def progressed(self, progress: Watched) -> None:
        """Send what is due. Call it often: it looks at files every half minute at most, and only with a target."""
        if not self._targets:
            return
        if progress.failure is not None and not self._failure_told:
            self._failure_told = True
            self._send("failure", f"the first run failed: {progress.failure}")
        if self._clock() - self._looked_at >= _LOOK_SECONDS:
            self._looked_at = self._clock()
            self._check_movement(progress)

    def _check_movement(self, progress: Watched) -> None:
        signs = progress.activity()
        if signs != self._signs:
            self._signs, self._moved_at, self._standstill_told = signs, self._clock(), False
        elif self._clock() - self._moved_at >= STANDSTILL_SECONDS and not self._standstill_told:
            self._standstill_told = True
            minutes = round(STANDSTILL_SECONDS / 60)
            done = f"{progress.done} of {count_of(progress.total, 'run')} done"
            self._send("standstill", f"nothing has moved for {minutes} minutes, {done}: {self._status()}")

    def failed(self, error: BaseException) -> None:
        """Send the notice of a command that ended with an error or an interruption."""
        if isinstance(error, AccelsweepError):
            self._send("end", f"ended with an error: {error}")
        elif isinstance(error, KeyboardInterrupt):
            self._send("end", f"interrupted: {self._status()}")
        elif isinstance(error, Exception):
            self._send("end", f"ended with an error: {type(error).__name__}: {error}")

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


def listener(request: Request, folder: SweepFolder | None) -> Notices:
    """Return the notices that a request asks for. Raises InputError where none could be sent."""
    targets = [Target(address) for address in request.features.get("notify") or ()]
    for target in targets:
        target.check()
    return Notices(folder, targets, warn)


if __name__ == "__main__":
    sys.exit(main())
