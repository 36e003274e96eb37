"""A child process of the head, in a session of its own, that dies with it and is stopped politely first."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Self

from accelsweep.machine import linux

_POLITE_SECONDS = 60.0


class Child:
    """A running command whose output goes to a log file."""

    def __init__(self, process: subprocess.Popen[bytes], log: Path) -> None:
        """Wrap a started `process`; use `start`."""
        self._process = process
        self.log = log

    @classmethod
    def start(
        cls,
        command: list[str],
        *,
        cwd: Path,
        log: Path,
        variables: Mapping[str, str] | None = None,
        environment: Mapping[str, str] | None = None,
        descriptors: Sequence[int] = (),
    ) -> Child:
        """Start `command` in `cwd` with stdout and stderr written to `log` (made anew).

        `variables` are added to the environment: a list of processes does not show them, so secrets go there.
        `environment` is ours unless it is given.
        `descriptors` stay open in it under the same numbers.
        """
        log.parent.mkdir(parents=True, exist_ok=True)
        with log.open("wb") as output:
            process = subprocess.Popen(
                command,
                cwd=cwd,
                env={**(os.environ if environment is None else environment), **(variables or {})},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                pass_fds=descriptors,
                preexec_fn=partial(_as_child, os.getpid()),  # noqa: PLW1509 - we have one thread
            )
        return cls(process, log)

    @property
    def code(self) -> int:
        """The exit code, once the process has ended."""
        return self._process.wait()

    def running(self) -> bool:
        """Return whether the process still runs."""
        return self._process.poll() is None

    def wait(self) -> None:
        """Wait until the process ends by itself."""
        self._process.wait()

    def interrupt(self) -> None:
        """Send SIGINT to the process and its group, as Ctrl-C would, and wait; kill it if it ignores that."""
        self._signal_group(signal.SIGINT)
        self._wait_or_kill()

    def kill(self) -> None:
        """End the process and its group at once, before it can put down what it does."""
        self._signal_group(signal.SIGKILL)
        self._process.wait()

    def finish(self) -> None:
        """Ask the process to end (SIGTERM), and wait until it has; kill it if it does not."""
        if self.running():
            self._process.terminate()
        self._wait_or_kill()

    def _wait_or_kill(self) -> None:
        try:
            self._process.wait(_POLITE_SECONDS)
        except (subprocess.TimeoutExpired, KeyboardInterrupt):  # a second Ctrl-C means: kill it now
            self.kill()

    def _signal_group(self, number: signal.Signals) -> None:
        if self.running():
            os.killpg(self._process.pid, number)

    def __enter__(self) -> Self:
        """Return the child; leaving the block ends it if it still runs."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.running():
            self.interrupt()


def _as_child(head: int) -> None:
    """Make this process one that the head can stop.

    A dead head must not leave a second, unwatched one behind. Supervisors outlive it and are waited for.
    A head that a script starts in the background ignores SIGINT, and so would its children, which it ends by SIGINT.
    """
    linux.die_with_parent(head)
    signal.signal(signal.SIGINT, signal.SIG_DFL)
