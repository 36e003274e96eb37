"""Notifications on completion, first failure or stall, sent to a shell command or to an apprise service.

Each notification is delivered by a separate process with a timeout, so that no service can delay or crash the driver.
Any part of a URL may be secret (`slack://TOKEN/...`), so URLs are passed on standard input and only their scheme is
shown.
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

STALL_SECONDS = 3600.0
"""A sweep without progress for this long triggers a notification."""

_POLL_SECONDS = 30.0


@dataclass(frozen=True)
class Message:
    """A notification: `event` is `end`, `failure` or `stall`; `title` contains the sweep's name."""

    event: str
    title: str
    text: str


@dataclass(frozen=True)
class Target:
    """A recipient of notifications: `command:` plus a shell command, or an apprise URL such as `json://host/path`."""

    address: str

    @property
    def public_form(self) -> str:
        """The address without secrets: the first word of the command, or the scheme of the URL."""
        return public_form(self.address)

    @property
    def command(self) -> str | None:
        """The shell command; None for an apprise URL."""
        return self.address.removeprefix(COMMAND).strip() if self.address.startswith(COMMAND) else None

    def check(self) -> None:
        """Raise InputError if the target is invalid."""
        if self.command == "":
            raise InputError(
                f"--notify {COMMAND} contains no command: try, for example, --notify 'command: mail -s done me'"
            )
        if self.command is None and (error := self._run_apprise({})):
            raise InputError(f"--notify {self.public_form}: {error}")

    def send(self, message: Message) -> str | None:
        """Deliver `message`; return the error, if any."""
        if self.command is None:
            return self._run_apprise({"title": message.title, "text": message.text})
        line = f"{message.title}: {message.text}"
        variables = {"ACCELSWEEP_NOTIFICATION": line, "ACCELSWEEP_NOTIFICATION_EVENT": message.event}
        return _run(("/bin/sh", "-c", self.command), f"{line}\n", variables)

    def _run_apprise(self, message: dict[str, str]) -> str | None:
        command = (sys.executable, "-P", "-m", "accelsweep.features.notifications.notify")
        return _run(command, json.dumps({"address": self.address, **message}), {})


def _run(command: Sequence[str], stdin: str, variables: dict[str, str]) -> str | None:
    """Run `command` with additional environment variables; return the error, if any."""
    with tempfile.TemporaryFile() as stderr:  # not a pipe, which a background child of the command would keep open
        process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=stderr,
            env={**os.environ, **variables},
            start_new_session=True,
        )
        try:
            process.communicate(stdin.encode(), timeout=TIMEOUT_SECONDS)
        except subprocess.TimeoutExpired:
            return f"it took longer than {TIMEOUT_SECONDS:g} s"
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
        last_line = [line.strip() for line in tail_lines(stderr) if line.strip()][-1:]
    if process.returncode == 0:
        return None
    return ": ".join([f"it exited with code {process.returncode}", *last_line])


class Progress(Protocol):
    """A sweep's progress; `failure` describes the first failed run."""

    done: int
    total: int
    failure: str | None

    def activity(self) -> Any:
        """Return a value that changes with any progress."""


class Notifier:
    """Sends the notifications of one command, as a `driver.run_sweep.Listener`."""

    def __init__(
        self,
        folder: SweepFolder | None,
        targets: Sequence[Target],
        report_error: Callable[[str], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`folder` is None until the sweep's name is known. `report_error` receives errors from failed deliveries."""
        self.folder, self._targets, self._report_error, self._clock = folder, tuple(targets), report_error, clock
        self._failure_sent = self._stall_sent = False
        self._signs: Any = None
        self._progressed_at = self._polled_at = clock()

    def progressed(self, progress: Progress) -> None:
        """Send due notifications. Cheap to call often: it polls at most every 30 s, and only if there is a target."""
        if not self._targets:
            return
        if progress.failure is not None and not self._failure_sent:
            self._failure_sent = True
            self._send("failure", f"the first run failed: {progress.failure}")
        if self._clock() - self._polled_at >= _POLL_SECONDS:
            self._polled_at = self._clock()
            self._check_stall(progress)

    def _check_stall(self, progress: Progress) -> None:
        activity = progress.activity()
        if activity != self._signs:
            self._signs, self._progressed_at, self._stall_sent = activity, self._clock(), False
        elif self._clock() - self._progressed_at >= STALL_SECONDS and not self._stall_sent:
            self._stall_sent = True
            done = f"{progress.done} of {count_of(progress.total, 'run')} done"
            self._send("stall", f"no progress for {STALL_SECONDS / 60:.0f} minutes, {done}: {self._status()}")

    def failed(self, error: BaseException) -> None:
        """Send the notification about an error or interruption."""
        if isinstance(error, AccelsweepError):
            self._send("end", f"ended with an error: {error}")
        elif isinstance(error, KeyboardInterrupt):
            self._send("end", f"interrupted: {self._status()}")
        elif isinstance(error, Exception):
            self._send("end", f"ended with an error: {type(error).__name__}: {error}")

    def ended(self, code: int) -> None:
        """Send the notification about a command that exits with `code`."""
        if not self._targets or self.folder is None:
            return
        if code == EXIT_INTERRUPTED:
            self._send("end", f"interrupted: {self._status()}")
            return
        try:
            findings = Findings.read(self.folder.findings)
        except (FileNotFoundError, DamagedFile):
            self._send("end", f"ended without a report: {self._status()}")
            return
        unsettled = sum(count for outcome, count in findings.outcomes.items() if not outcome.settled)
        runs = f"{findings.planned_runs - unsettled} of {count_of(findings.planned_runs, 'run')} settled"
        self._send("end", f"ended, {runs}. {findings.recommendation.sentence}")

    def _status(self) -> str:
        return f"accelsweep status {self.folder.name}" if self.folder else "before anything was planned"

    def _send(self, event: str, text: str) -> None:
        title = f"accelsweep {self.folder.name}" if self.folder else "accelsweep"
        message = Message(event, title, escaped(masked(text)))
        for target in self._targets:
            if error := target.send(message):
                self._report_error(f"the notification to {target.public_form} failed: {error}")


def listener(request: Request, folder: SweepFolder | None) -> Notifier:
    """Return the notifier of a request. Raises InputError for an invalid target."""
    targets = [Target(address) for address in request.features.get("notify") or ()]
    for target in targets:
        target.check()
    return Notifier(folder, targets, warn)


def main() -> int:
    """Send the message from standard input through apprise; if it contains no text, only check the URL."""
    message = json.load(sys.stdin)
    try:
        import apprise
    except ImportError:
        sys.stderr.write("apprise is not installed: pip install 'accelsweep[notify]', or use command:...\n")
        return 2
    with apprise.LogCapture(level=apprise.logging.WARNING, fmt="%(message)s") as log:  # type: ignore[no-untyped-call]
        service = apprise.Apprise()
        if not service.add(message["address"]):
            sys.stderr.write("apprise does not support this service, or the URL is incomplete\n")
            return 2
        text = message.get("text")
        if text is None or service.notify(body=text, title=message["title"], body_format=apprise.NotifyFormat.TEXT):
            return 0
        error = next(iter(log.getvalue().strip().splitlines()), "the service rejected the notification")
    sys.stderr.write(redacted(error, message["address"]) + "\n")
    return 1


def redacted(text: str, address: str) -> str:
    """Return `text` with every part of `address` removed except its scheme."""
    _, _, rest = address.partition("://")
    for part in sorted(filter(None, re.split(r"[/:@?&=#]+", rest)), key=len, reverse=True):
        text = text.replace(part, "***") if len(part) > 3 else text
    return text


if __name__ == "__main__":
    sys.exit(main())
