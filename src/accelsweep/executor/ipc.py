"""The supervisor's way to wait: asleep until a signal, output of a run or a deadline, with no thread and no polling.

A wake-up costs processor time that a timed run on the same cores would notice, so there are as few as possible.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import socket
import struct
from collections.abc import Callable, Iterator, Sequence
from types import FrameType
from typing import Any

STOPPING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1)  # schedulers and srun warn by the last one

Pause = Callable[[float], bool]
"""Sleeps for at most so many seconds and returns whether to give up waiting."""


class Interrupted(Exception):
    """A wait was given up because the supervisor is to stop."""


class Signals:
    """Within `caught()`, SIGINT, SIGTERM, SIGHUP and SIGUSR1 become a wish to stop, and SIGCHLD only wakes."""

    def __init__(self) -> None:
        self.stop: signal.Signals | None = None
        self._read_end = -1

    @contextlib.contextmanager
    def caught(self) -> Iterator[None]:
        """Catch the signals until the block ends, then put the earlier handlers back. Main thread only."""
        self._read_end, write_end = os.pipe()
        for end in (self._read_end, write_end):
            os.set_blocking(end, False)
        before: dict[int, Any] = {number: signal.signal(number, self._note) for number in (*STOPPING, signal.SIGCHLD)}
        wakeup = signal.set_wakeup_fd(write_end, warn_on_full_buffer=False)
        try:
            yield
        finally:
            signal.set_wakeup_fd(wakeup)
            for number, handler in before.items():
                signal.signal(number, handler)
            os.close(self._read_end)
            os.close(write_end)

    def _note(self, number: int, _frame: FrameType | None) -> None:
        if number in STOPPING and self.stop is None:
            self.stop = signal.Signals(number)

    def wait(self, seconds: float, descriptors: Sequence[int] = ()) -> None:
        """Sleep until a signal arrives, one of `descriptors` can be read, or `seconds` have passed."""
        poll = select.poll()
        for descriptor in (self._read_end, *descriptors):
            poll.register(descriptor, select.POLLIN)
        poll.poll(max(0.0, seconds) * 1000)
        with contextlib.suppress(BlockingIOError):
            os.read(self._read_end, 4096)

    def pause(self, seconds: float) -> bool:
        """Sleep for at most `seconds`; return whether we are asked to stop."""
        self.wait(seconds)
        return self.stop is not None

    @staticmethod
    @contextlib.contextmanager
    def held_back() -> Iterator[None]:
        """Keep signals waiting until the block ends: a fork must not happen while one is about to be handled."""
        before = signal.pthread_sigmask(signal.SIG_BLOCK, STOPPING)
        try:
            yield
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)

    @staticmethod
    def reset_in_child() -> None:
        """Give a forked child the system's own signal handling back, and the signals held back at the fork."""
        signal.set_wakeup_fd(-1)
        for number in (*STOPPING, signal.SIGCHLD):
            signal.signal(number, signal.SIG_DFL)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, STOPPING)


# Messages between processes of ours on one machine, over an abstract Unix socket.

FORK_SERVER_VARIABLE = "ACCELSWEEP_FORK_SERVER"
"""The environment variable with the name of the socket, for the jobs of the head that started the server."""

OUTSIDE_VARIABLE = "ACCELSWEEP_OUTSIDE"
"""The environment variable with the name of the socket, for a supervisor in a container."""

_STREAMS = (0, 1, 2)


def address(name: str) -> str:
    """Return the address of the abstract socket `name`. It has no file, so nothing is left after a kill."""
    return f"\0{name}"


def same_user(connection: socket.socket) -> bool:
    """Return whether a process of this process's user is at the other end: abstract sockets have no permissions."""
    peer = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
    return bool(struct.unpack("3i", peer)[1] == os.geteuid())


def send(connection: socket.socket, message: dict[str, Any]) -> None:
    """Send one message. Raises OSError if nobody is at the other end."""
    connection.sendall(json.dumps(message).encode() + b"\n")


def receive(connection: socket.socket) -> dict[str, Any] | None:
    """Return the next message, and leave what follows it; None if the other side has died."""
    line = b""
    while not line.endswith(b"\n"):
        try:
            seen = connection.recv(65536, socket.MSG_PEEK)
            more = connection.recv(seen.find(b"\n") + 1 or len(seen)) if seen else b""
        except ConnectionResetError:
            more = b""
        if not more:
            return None
        line += more
    found = json.loads(line)
    return found if isinstance(found, dict) else None


def send_streams(connection: socket.socket, streams: Sequence[int] = _STREAMS) -> None:
    """Send the descriptors `streams`, this process's own standard ones by default."""
    socket.send_fds(connection, [b"\0"], streams)


def receive_streams(connection: socket.socket) -> list[int]:
    """Return the descriptors that the other side has sent, three at most; none if it died."""
    return socket.recv_fds(connection, 1, len(_STREAMS))[1]
