"""Workers in other processes: what they answer, and what becomes of both sides where one of them ends."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from multiprocessing import AuthenticationError
from multiprocessing.connection import Client

import pytest

from accelsweep.features.serving.server import LOOPBACK, AnswerSamples, RemoteWorkers, work_for


@pytest.fixture
def threads() -> Iterator[ThreadPoolExecutor]:
    """A thread stands in for the other process: what is between them is the same socket."""
    with ThreadPoolExecutor(2) as pool:
        yield pool


def begun(there: RemoteWorkers, threads: ThreadPoolExecutor, answer: AnswerSamples, workers: int = 1) -> Future[None]:
    return threads.submit(work_for, there.invitation, answer, workers, lambda: None)


def test_a_batch_is_answered_over_there_and_home_is_where_the_answer_returns(threads: ThreadPoolExecutor) -> None:
    seen: list[Sequence[int]] = []
    there = RemoteWorkers()
    other = begun(there, threads, seen.append)
    (answer,) = there.answers(1)
    answer([3, 1])
    assert seen == [[3, 1]], "the answer returns after it was given"
    there.close()
    assert other.result(10) is None, "closing sends the workers home"


def test_each_of_several_workers_has_an_answer_of_its_own(threads: ThreadPoolExecutor) -> None:
    both = threading.Barrier(2, timeout=10)
    there = RemoteWorkers()
    other = begun(there, threads, lambda _: both.wait() and None, workers=2)
    first, second = there.answers(2)
    beside = threads.submit(first, [0])
    second([1])  # returns only when the other worker answers at the same time
    beside.result(10)
    there.close()
    other.result(10)


def test_an_error_over_there_is_raised_there_and_its_echo_here(threads: ThreadPoolExecutor) -> None:
    def tired(samples: Sequence[int]) -> None:
        raise ValueError(f"no answer to {samples}")

    there = RemoteWorkers()
    other = begun(there, threads, tired)
    (answer,) = there.answers(1)
    with pytest.raises(RuntimeError, match="Connection closed by peer"):
        answer([7])
    there.close()
    with pytest.raises(ValueError, match=r"no answer to \[7\]"):
        other.result(10)


def test_nobody_without_the_key_is_let_in(threads: ThreadPoolExecutor) -> None:
    there = RemoteWorkers()
    coming = threads.submit(there.answers, 1)
    with pytest.raises(AuthenticationError):
        Client((LOOPBACK, there.invitation.port), authkey=b"guessed")
    with pytest.raises(AuthenticationError):
        coming.result(10)
    there.close()
