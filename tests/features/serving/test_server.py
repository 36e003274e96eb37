"""The server: one queue, batches of several queries, and the wait for them."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from itertools import accumulate
from random import Random

import pytest

from accelsweep.features.serving.server import QueryServer


class Clock:
    """A clock that stands still until it is told to go on."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def asked(server: QueryServer, count: int, first: int = 0) -> None:
    server.put([(100 + number, number) for number in range(first, first + count)])


def idle(**rules: float) -> tuple[QueryServer, Clock]:
    """Return a server without workers, whose queue the test takes from itself, and its clock."""
    clock = Clock()
    made = QueryServer([], lambda _: None, clock=clock, **rules)  # type: ignore[arg-type]
    return made, clock


def test_a_batch_holds_at_most_so_many_queries_in_the_order_of_their_coming() -> None:
    server, _ = idle(most=3)
    asked(server, 5)
    assert [[one.sample for one in server.next_batch()] for _ in range(2)] == [[0, 1, 2], [3, 4]]


def test_a_full_batch_waits_for_nobody() -> None:
    server, _ = idle(most=4, patience_seconds=60.0)
    asked(server, 4)
    assert [one.id for one in server.next_batch()] == [100, 101, 102, 103]


def test_a_batch_waits_for_more_until_its_oldest_query_has_waited_its_time() -> None:
    server, clock = idle(most=4, patience_seconds=60.0)
    asked(server, 1)
    clock.now = 59.0
    asked(server, 1, first=1)
    clock.now = 60.0
    assert [one.sample for one in server.next_batch()] == [0, 1], "the second one has waited one second only"


def test_a_closed_server_answers_what_waits_and_then_ends() -> None:
    answered: list[int] = []
    with QueryServer([answered.extend], lambda _: None, most=2, patience_seconds=60.0) as server:
        asked(server, 3)
    assert sorted(answered) == [0, 1, 2]
    assert server.next_batch() == []


@pytest.fixture
def both() -> Iterator[threading.Barrier]:
    meeting = threading.Barrier(2, timeout=20.0)
    yield meeting
    meeting.abort()


def test_two_workers_answer_at_the_same_time_and_each_begins_once(both: threading.Barrier) -> None:
    began: list[str] = []
    replies: list[int] = []

    def answer(samples: Sequence[int]) -> None:
        both.wait()  # returns only when two workers are here

    with QueryServer(
        [answer, answer], replies.extend, begin=lambda: began.append(threading.current_thread().name)
    ) as server:
        asked(server, 2)
    assert server.error is None
    assert (sorted(replies), sorted(began)) == ([100, 101], ["worker-0", "worker-1"])
    assert server.batches == [1, 1]


def test_an_error_in_an_answer_is_kept_and_every_query_has_its_reply() -> None:
    """The generator waits for each reply: without one it would wait for ever."""
    replies: list[int] = []

    def answer(samples: Sequence[int]) -> None:
        raise ValueError(f"no answer to {samples[0]}")

    with QueryServer([answer], replies.extend) as server:
        asked(server, 3)
    assert sorted(replies) == [100, 101, 102]
    assert str(server.error) == "no answer to 0"


@pytest.mark.parametrize(("load", "waits"), [(0.5, 0.5), (0.8, 2.0)])
def test_queries_wait_as_long_as_queueing_theory_says_on_a_clock_that_costs_nothing(load: float, waits: float) -> None:
    """M/D/1: load / (2 (1 - load)) services on average (Pollaczek and Khinchine), here of one second each."""
    server, clock = idle(most=1)
    random = Random(1)
    arrivals = list(accumulate(random.expovariate(load) for _ in range(200_000)))
    due, waited = 0, 0.0
    for number in range(len(arrivals)):
        clock.now = max(clock.now, arrivals[number])
        while due < len(arrivals) and arrivals[due] <= clock.now:
            asked(server, 1, first=due)
            due += 1
        (query,) = server.next_batch()
        waited += clock.now - arrivals[query.sample]
        clock.now += 1.0
    assert waited / len(arrivals) == pytest.approx(waits, rel=0.05)
