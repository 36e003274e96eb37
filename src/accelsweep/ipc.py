"""Communication between our processes: signals without polling, and messages over abstract Unix sockets.

The executor sleeps until a signal or output from a run arrives, or a deadline passes. Each wake-up costs CPU time on
the cores of a timed run, so there are no helper threads and no polling loops.
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

STOP_SIGNALS = (
    signal.SIGINT,
    signal.SIGTERM,
    signal.SIGHUP,
    signal.SIGUSR1,
)  # schedulers and srun send SIGUSR1 as a warning

Pause = Callable[[float], bool]
"""Sleeps for at most the given number of seconds; returns True if the caller should stop waiting."""


class Interrupted(Exception):
    """A wait was abandoned because the executor was told to stop."""


class Signals:
    """Within `caught()`, the first stop signal to arrive is stored in `stop`, and SIGCHLD only wakes `wait`."""

    def __init__(self) -> None:
        self.stop: signal.Signals | None = None
        self._wakeup_fd = -1

    @contextlib.contextmanager
    def caught(self) -> Iterator[None]:
        """Handle the signals inside the with-block, then restore the previous handlers. Main thread only."""
        self._wakeup_fd, write_end = os.pipe()
        for end in (self._wakeup_fd, write_end):
            os.set_blocking(end, False)
        handled = (*STOP_SIGNALS, signal.SIGCHLD)
        previous: dict[int, Any] = {number: signal.signal(number, self._on_signal) for number in handled}
        previous_fd = signal.set_wakeup_fd(write_end, warn_on_full_buffer=False)
        try:
            yield
        finally:
            signal.set_wakeup_fd(previous_fd)
            for number, handler in previous.items():
                signal.signal(number, handler)
            os.close(self._wakeup_fd)
            os.close(write_end)

    def _on_signal(self, number: int, _frame: FrameType | None) -> None:
        if number in STOP_SIGNALS and self.stop is None:
            self.stop = signal.Signals(number)

    def wait(self, seconds: float, descriptors: Sequence[int] = ()) -> None:
        """Sleep until a signal arrives, one of `descriptors` is readable, or `seconds` have passed."""
        poll = select.poll()
        for descriptor in (self._wakeup_fd, *descriptors):
            poll.register(descriptor, select.POLLIN)
        poll.poll(max(0.0, seconds) * 1000)
        with contextlib.suppress(BlockingIOError):
            os.read(self._wakeup_fd, 4096)

    def pause(self, seconds: float) -> bool:
        """Sleep for at most `seconds`; return whether a stop signal arrived."""
        self.wait(seconds)
        return self.stop is not None

    @staticmethod
    @contextlib.contextmanager
    def blocked() -> Iterator[None]:
        """Block the stop signals, so that no child is forked while such a signal is pending."""
        previous = signal.pthread_sigmask(signal.SIG_BLOCK, STOP_SIGNALS)
        try:
            yield
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, previous)

    @staticmethod
    def reset_in_child() -> None:
        """Restore the default handlers in a forked child, and unblock the signals that were blocked at the fork."""
        signal.set_wakeup_fd(-1)
        for number in (*STOP_SIGNALS, signal.SIGCHLD):
            signal.signal(number, signal.SIG_DFL)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, STOP_SIGNALS)


FORK_SERVER_VARIABLE = "ACCELSWEEP_FORK_SERVER"
"""The environment variable that contains the name of the fork server's socket."""

PROJECT_SERVERS_VARIABLE = "ACCELSWEEP_PROJECT_FORK_SERVERS"
"""The environment variable that contains the beginning of the names of the sockets of a command's project servers."""

SRUN_PROXY_VARIABLE = "ACCELSWEEP_SRUN_PROXY"
"""The environment variable that contains the name of the srun proxy's socket, for an executor in a container."""

_STDIO = (0, 1, 2)


def address(name: str) -> str:
    """Return the address of the abstract socket `name`, which leaves no file behind even if the process is killed."""
    return f"\0{name}"


@contextlib.contextmanager
def listening(name: str) -> Iterator[int]:
    """Listen on the abstract socket `name`, and yield its descriptor for a server that is started in the with-block.

    Clients may connect from then on; they wait until the server accepts. Raises OSError if the name is taken.
    """
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(address(name))
        listener.listen()
        yield listener.fileno()


def same_user(connection: socket.socket) -> bool:
    """Return whether the peer has the same user ID; abstract sockets do not support permissions."""
    peer = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
    return bool(struct.unpack("3i", peer)[1] == os.geteuid())


def send(connection: socket.socket, message: dict[str, Any]) -> None:
    """Send one message. Raises OSError if the peer is gone."""
    connection.sendall(json.dumps(message).encode() + b"\n")


def receive(connection: socket.socket) -> dict[str, Any] | None:
    """Return the next message and leave later ones in the socket; None if the peer is gone."""
    line = b""
    while not line.endswith(b"\n"):
        try:
            peeked = connection.recv(65536, socket.MSG_PEEK)
            chunk = connection.recv(peeked.find(b"\n") + 1 or len(peeked)) if peeked else b""
        except ConnectionResetError:
            chunk = b""
        if not chunk:
            return None
        line += chunk
    message = json.loads(line)
    return message if isinstance(message, dict) else None


def send_descriptors(connection: socket.socket, descriptors: Sequence[int] = _STDIO) -> None:
    """Send file descriptors, by default standard input, output and error."""
    socket.send_fds(connection, [b"\0"], descriptors)


def receive_descriptors(connection: socket.socket, most: int = len(_STDIO)) -> list[int]:
    """Return the descriptors that the peer sent; empty if the peer is gone.

    Raises ConnectionResetError if the peer was gone before it had read every message.
    """
    return socket.recv_fds(connection, 1, most)[1]
