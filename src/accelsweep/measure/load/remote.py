"""A server's workers in other processes of this machine: of a batch only the numbers of its samples travel.

Each process has drawn samples of its own. A number takes some 0.1 ms there and back, which is part of the query's time.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from multiprocessing.connection import Client, Connection, Listener
from secrets import token_bytes
from typing import NamedTuple

from accelsweep.measure.load.server import AnswerSamples

LOOPBACK = "127.0.0.1"


class Invitation(NamedTuple):
    """The port at which a server waits for workers, and the key that they must know."""

    port: int
    key: bytes


class RemoteWorkers:
    """The workers that have come to this process from others. `close` sends them home."""

    def __init__(self) -> None:
        """Open a port of this machine."""
        key = token_bytes(32)
        self._listener = Listener((LOOPBACK, 0), authkey=key)
        self.invitation = Invitation(int(self._listener.address[1]), key)
        self._connections: list[Connection] = []

    def answers(self, count: int) -> list[AnswerSamples]:
        """Wait for `count` workers; return the answers that they give."""
        self._connections = [self._listener.accept() for _ in range(count)]
        return [_answer_of(connection) for connection in self._connections]

    def close(self) -> None:
        """Close the port and all connections."""
        self._listener.close()
        for connection in self._connections:
            connection.close()


def _answer_of(connection: Connection) -> AnswerSamples:
    def answer(samples: Sequence[int]) -> None:
        try:
            connection.send_bytes(json.dumps([int(number) for number in samples]).encode())
            connection.recv_bytes()
        except (EOFError, OSError) as error:
            # These words make it the echo of another rank's failure, whose own words are the reason (rank.errors).
            raise RuntimeError("Connection closed by peer: a rank behind the queue ended") from error

    return answer


def work_for(invitation: Invitation, answer: AnswerSamples, workers: int, begin: Callable[[], object]) -> None:
    """Answer batches with so many threads until the server sends them home. Each thread calls `begin` once, first.

    Raises what `answer` raised. The server then has one worker less, and sees that it is gone.
    """

    def work(_: int) -> None:
        with Client((LOOPBACK, invitation.port), authkey=invitation.key) as connection:
            while (asked := _next(connection)) is not None:
                answer(asked)
                connection.send_bytes(b"")

    with ThreadPoolExecutor(workers, "worker", initializer=begin) as threads:
        list(threads.map(work, range(workers)))


def _next(connection: Connection) -> list[int] | None:
    try:
        asked: list[int] = json.loads(connection.recv_bytes())
    except (EOFError, ConnectionError):
        return None
    return asked
