"""Processes of one script, each forked from a process that has imported it: a fresh interpreter takes 0.4 s of a core.

`start` returns what tests need of `subprocess.Popen`. The forks are children of that process, not of the tests'.
"""

from __future__ import annotations

import gc
import importlib
import json
import os
import select
import signal
import socket
import subprocess
import sys
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from types import FrameType
from typing import Self

REQUEST_BYTES = 2**17


class Forked:
    """A running fork, in a session of its own; its output is read by `communicate`."""

    def __init__(self, said: int, output: int) -> None:
        """`said` gets a line with the process's number and later one with how it ended, `output` what it prints."""
        self._said, self._output = os.fdopen(said, "rb", buffering=0), os.fdopen(output, "rb", buffering=0)
        self.pid = int(self._said.readline())
        self.returncode: int | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, failure: object, *_: object) -> None:
        if failure:
            self.kill()
        self._output.close()
        self.wait()

    def poll(self) -> int | None:
        """Return the exit code, None while the process runs."""
        if self.returncode is None and select.select([self._said], [], [], 0)[0]:
            self.returncode = int(self._said.readline())
            self._said.close()
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        """Return the exit code; raise TimeoutExpired after `timeout` seconds."""
        if self.returncode is None and not select.select([self._said], [], [], timeout)[0]:
            raise subprocess.TimeoutExpired("a fork", timeout or 0.0)
        self.poll()
        assert self.returncode is not None
        return self.returncode

    def communicate(self, timeout: float | None = None) -> tuple[str, None]:
        """Return all output when nobody can add to it, once the process has ended."""
        parts = []
        while select.select([self._output], [], [], timeout)[0]:
            parts.append(self._output.read(65536))
            if not parts[-1]:
                self._output.close()
                self.wait(timeout)
                return b"".join(parts).decode(), None
        raise subprocess.TimeoutExpired("a fork", timeout or 0.0)

    def send_signal(self, number: int) -> None:
        """Send a signal unless the process is known to have ended."""
        if self.poll() is None:
            os.kill(self.pid, number)

    def terminate(self) -> None:
        """Ask it to end."""
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        """Kill it."""
        self.send_signal(signal.SIGKILL)


def start(module: str, *arguments: str, cwd: Path, environment: Mapping[str, str]) -> Forked:
    """Start `python MODULE.py arguments` for a module beside this one, whose `main` returns the exit code."""
    (said, say), (output, printed) = os.pipe(), os.pipe()
    request = {"arguments": [module, *arguments], "cwd": str(cwd), "environment": dict(environment)}
    requests, _ = _server(module)
    socket.send_fds(requests, [json.dumps(request).encode()], [say, printed])
    os.close(say)
    os.close(printed)
    return Forked(said, output)


@cache
def _server(module: str) -> tuple[socket.socket, subprocess.Popen[bytes]]:
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    command = [sys.executable, __file__, module, str(theirs.fileno())]
    server = subprocess.Popen(command, pass_fds=[theirs.fileno()], start_new_session=True)
    theirs.close()
    return ours, server


def _serve(module: str, requests: socket.socket) -> None:
    main = importlib.import_module(module).main
    gc.collect()
    gc.freeze()  # or each fork copies the pages that it looks through for garbage
    told: dict[int, int] = {}

    def reap(_number: int, _frame: FrameType | None) -> None:
        while told:
            pid, status = os.waitpid(-1, os.WNOHANG)
            if not pid:
                return
            os.write(told[pid], f"{os.waitstatus_to_exitcode(status)}\n".encode())
            os.close(told.pop(pid))

    signal.signal(signal.SIGCHLD, reap)
    while True:
        text, descriptors, _, _ = socket.recv_fds(requests, REQUEST_BYTES, 2)
        if not text:  # the tests have ended
            return
        say, printed = descriptors
        signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGCHLD])  # until its number is known
        if (pid := os.fork()) == 0:
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGCHLD])
            os.close(say)
            for other in told.values():
                os.close(other)
            requests.close()
            _live(main, printed, **json.loads(text))
        os.write(say, f"{pid}\n".encode())
        told[pid] = say
        os.close(printed)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGCHLD])


def _live(main: object, printed: int, arguments: list[str], cwd: str, environment: dict[str, str]) -> None:
    code = 1
    try:
        os.setsid()
        os.dup2(printed, 1)
        os.dup2(printed, 2)
        os.close(printed)
        os.chdir(cwd)
        os.environ.clear()
        os.environ.update(environment)
        sys.argv = arguments
        assert callable(main)
        code = main()
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else 1
    except BaseException:  # noqa: BLE001 - a fork must never return into the server
        sys.excepthook(*sys.exc_info())
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


if __name__ == "__main__":
    _serve(sys.argv[1], socket.socket(fileno=int(sys.argv[2])))
