"""Messages between processes of ours on one machine, over an abstract Unix socket.

A job of Snakemake's asks the fork server with its standard streams and its surroundings. It is answered with the number
of a supervisor's process or with a refusal, and later with the supervisor's exit code. A supervisor in a container asks
the process outside (outside.py) in the same way. Each message is a line of JSON. The connection ends with the death of
either side, so that each notices the other's.
"""

from __future__ import annotations

import json
import os
import socket
import struct
from collections.abc import Sequence
from typing import Any

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
