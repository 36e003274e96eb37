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
from collections.abc import Sequence
from dataclasses import dataclass

from accelsweep.errors import InputError
from accelsweep.files import tail_lines
from accelsweep.redaction import masked

COMMAND = "command:"
TIMEOUT_SECONDS = 30.0

_DELIVER = (sys.executable, "-P", "-m", "accelsweep.drive.following.delivery")
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
        if self.command is not None:
            return COMMAND + masked(next(iter(self.command.split()), ""))
        scheme, there, _ = self.address.partition("://")
        return f"{scheme}://***" if there else "***"

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


if __name__ == "__main__":
    sys.exit(main())
