"""The job's side: it asks for a supervisor, hands signals on to it, and ends with its exit code."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import sys
from collections.abc import Sequence
from pathlib import Path
from types import FrameType
from typing import Any

from accelsweep.base.errors import EXIT_INCOMPLETE
from accelsweep.supervise.processes.messages import (
    FORK_SERVER_VARIABLE,
    address,
    receive,
    same_user,
    send,
    send_streams,
)
from accelsweep.supervise.signals import STOPPING


def ask(arguments: Sequence[str]) -> int | None:
    """Have a supervisor forked for `python -m accelsweep.supervise ARGUMENTS`; return its exit code when it has ended.

    None if there is no fork server, or if it refuses: then this process has to be the supervisor itself.
    """
    name = os.environ.get(FORK_SERVER_VARIABLE)
    if not name or sys.platform != "linux":
        return None
    with socket.socket(socket.AF_UNIX) as server:
        try:
            server.connect(address(name))
            answer = _answer(server, arguments) if same_user(server) else None
        except OSError:
            return None
        if answer is None:
            return None
        if "pid" in answer:
            return _wait(server, int(answer["pid"]))
    sys.stderr.write(f"this process imports torch itself, because the fork server has {answer['refused']}\n")
    return None


def _answer(server: socket.socket, arguments: Sequence[str]) -> dict[str, Any] | None:
    from accelsweep.supervise.fork_server.surroundings import surroundings

    send_streams(server)
    environment = {"environment": dict(os.environ), "surroundings": surroundings()}
    send(server, {"arguments": list(arguments), "cwd": str(Path.cwd()), "path": sys.path, **environment})
    return receive(server)


def _wait(server: socket.socket, supervisor: int) -> int:
    def hand_on(number: int, _frame: FrameType | None) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(supervisor, number)

    for number in STOPPING:
        signal.signal(number, hand_on)
    ended = receive(server)
    if ended is None:
        sys.stderr.write(f"the supervisor, process {supervisor}, was killed\n")
        return EXIT_INCOMPLETE
    return int(ended["code"])
