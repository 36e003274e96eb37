"""A server for single queries: one queue, dynamic batching, and one or more workers.

A worker takes up to `most` waiting queries at a time. It waits for more until the oldest query has waited
`patience_seconds`, like "dynamic batching" in NVIDIA's Triton (model configuration, `max_queue_delay`). Workers are
threads, because torch releases the GIL while it computes.
"""

from __future__ import annotations

import json
import threading
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from multiprocessing.connection import Client, Connection, Listener
from secrets import token_bytes
from types import TracebackType
from typing import NamedTuple

from accelsweep.devices.clock import Clock, monotonic


class Query(NamedTuple):
    """A waiting query: LoadGen's `id`, its sample number, and its arrival time (s)."""

    id: int
    sample: int
    at: float


AnswerSamples = Callable[[Sequence[int]], None]
"""Answers a batch of samples, given their numbers, and returns once all of them have been answered."""


class QueryServer:
    """Answers queued queries while its context is open. An error while answering stops the server."""

    def __init__(
        self,
        answers: Sequence[AnswerSamples],
        reply: Callable[[Sequence[int]], None],
        *,
        most: int = 1,
        patience_seconds: float = 0.0,
        begin: Callable[[], object] = tuple,
        clock: Clock = monotonic,
    ) -> None:
        """Each of `answers` runs in a separate worker. `reply` is called with the IDs of answered queries.

        Each worker calls `begin` once before its first batch.
        """
        self._reply, self._begin = reply, begin
        self._most, self._patience, self._clock = most, patience_seconds, clock
        self._waiting: deque[Query] = deque()
        self._changed = threading.Condition()
        self._closed = False
        self._workers = [
            threading.Thread(target=self._work, args=(answer,), name=f"worker-{number}")
            for number, answer in enumerate(answers)
        ]
        self.error: BaseException | None = None
        self.batches: list[int] = []
        """The sizes of the answered batches."""

    def __enter__(self) -> QueryServer:
        """Start the workers."""
        for worker in self._workers:
            worker.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Let the workers answer the remaining queries, then stop them."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        for worker in self._workers:
            worker.join()

    def put(self, queries: Sequence[tuple[int, int]]) -> None:
        """Put queries, as pairs of ID and sample, into the queue."""
        now = self._clock()
        with self._changed:
            self._waiting.extend(Query(ident, sample, now) for ident, sample in queries)
            self._changed.notify(len(queries))

    def next_batch(self) -> list[Query]:
        """Wait for the next batch and return it. It is empty once the server is closed and the queue has drained."""
        with self._changed:
            while not self._closed or self._waiting:
                if not self._waiting:
                    self._changed.wait()
                    continue
                left = self._waiting[0].at + self._patience - self._clock()
                if left <= 0 or len(self._waiting) >= self._most or self._closed:
                    count = min(self._most, len(self._waiting))
                    return [self._waiting.popleft() for _ in range(count)]
                self._changed.wait(left)
        return []

    def _work(self, answer: AnswerSamples) -> None:
        self._begin()
        while batch := self.next_batch():
            try:
                if self.error is None:
                    answer([query.sample for query in batch])
            except BaseException as error:  # noqa: BLE001 - re-raised where the server was opened
                self.error = error
            self.batches.append(len(batch))
            self._reply([query.id for query in batch])  # even after an error: the generator waits for every reply


LOOPBACK = "127.0.0.1"


class Invitation(NamedTuple):
    """A server's port for remote workers, and its authentication key."""

    port: int
    key: bytes


class RemoteWorkers:
    """Workers in other processes on this machine. Only sample numbers are sent. `close` stops them."""

    def __init__(self) -> None:
        """Listen on a local port."""
        key = token_bytes(32)
        self._listener = Listener((LOOPBACK, 0), authkey=key)
        self.invitation = Invitation(int(self._listener.address[1]), key)
        self._connections: list[Connection] = []

    def answers(self, count: int) -> list[AnswerSamples]:
        """Wait for `count` workers; return a function per worker that makes it answer a batch."""
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
            # worker.error_classification treats this message as a consequence of another rank's failure.
            raise RuntimeError("Connection closed by peer: a rank behind the queue ended") from error

    return answer


def work_for(invitation: Invitation, answer: AnswerSamples, workers: int, begin: Callable[[], object]) -> None:
    """Answer batches with this number of threads until the server closes. Each thread first calls `begin` once.

    Raises the errors of `answer`; the server detects that the worker is gone.
    """

    def work(_: int) -> None:
        with Client((LOOPBACK, invitation.port), authkey=invitation.key) as connection:
            while (samples := _receive(connection)) is not None:
                answer(samples)
                connection.send_bytes(b"")

    with ThreadPoolExecutor(workers, "worker", initializer=begin) as threads:
        list(threads.map(work, range(workers)))


def _receive(connection: Connection) -> list[int] | None:
    try:
        samples: list[int] = json.loads(connection.recv_bytes())
    except (EOFError, ConnectionError):
        return None
    return samples
