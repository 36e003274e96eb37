"""MLPerf's LoadGen against a system whose capacity is known: it sleeps."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from accelsweep.features.serving.loadgen import PRECISION, Load, LoadTest, ask, find_peak
from accelsweep.features.serving.server import QueryServer

pytest.importorskip("mlperf_loadgen", reason="accelsweep's extra `serving` is not installed")


def sleeping(seconds: float) -> Callable[[Sequence[int]], None]:
    """Return an answer that takes so long, whatever the batch: a sleep, and the rest of it awake."""

    def answer(samples: Sequence[int]) -> None:
        until = time.perf_counter() + seconds
        time.sleep(max(0.0, seconds - 2e-4))
        while time.perf_counter() < until:
            pass

    return answer


def told(
    folder: Path, load: Load, answer: Callable[[Sequence[int]], None], name: str = "one", most: int = 1
) -> LoadTest:
    return ask(load, lambda reply: QueryServer([answer], reply, most=most), folder, name)


def test_a_load_beyond_the_capacity_is_invalid_with_loadgens_reason(tmp_path: Path) -> None:
    load = Load(400.0, latency_seconds=0.05, min_seconds=0.5, min_queries=100)
    found = told(tmp_path, load, sleeping(0.01))
    assert found.invalid is not None
    assert "Reduce target QPS" in found.invalid
    assert found.answered_per_second <= 101.0, "a query takes 10 ms"
    assert found.queries >= 100


def test_too_few_queries_for_their_percentile_are_invalid_though_none_was_late(tmp_path: Path) -> None:
    found = told(tmp_path, Load(100.0, latency_seconds=5.0, min_seconds=0.1, min_queries=10), lambda _: None)
    assert found.invalid is not None
    assert "Would need to run at least" in found.invalid


def test_what_was_asked_is_left_in_a_small_file_with_the_seeds(tmp_path: Path) -> None:
    found = told(tmp_path, Load(2000.0, min_seconds=0.2, min_queries=400, seed=7), lambda _: None, most=4)
    assert found.percentiles[0.5] <= found.percentiles[0.9] <= found.percentiles[0.99]
    assert [path.name for path in tmp_path.iterdir()] == ["one-summary.txt"]
    summary = (tmp_path / "one-summary.txt").read_text()
    assert "schedule_rng_seed : 7" in summary
    assert len(summary) < 10_000


def test_the_same_seed_asks_at_the_same_times_and_another_one_at_others(tmp_path: Path) -> None:
    asked = [told(tmp_path, Load(500.0, min_seconds=0.3, seed=seed), lambda _: None).queries for seed in (1, 1, 2)]
    assert asked[0] == asked[1] != asked[2]


def test_an_error_of_the_system_ends_the_test_and_is_raised(tmp_path: Path) -> None:
    def answer(samples: Sequence[int]) -> None:
        raise ZeroDivisionError("no answer")

    with pytest.raises(ZeroDivisionError, match="no answer"):
        told(tmp_path, Load(100.0, min_seconds=0.1), answer)


@pytest.mark.timing
@pytest.mark.long  # features/serving/test_peak_search.py covers the search; here a real clock does, for one bound
def test_the_highest_load_of_a_system_that_sleeps_is_the_inverse_of_its_sleep(tmp_path: Path) -> None:
    """With a bound of fifty services nearly the whole capacity can be used; more than all of it cannot."""
    seconds = 0.002

    def test(per_second: float) -> LoadTest:
        load = Load(per_second, latency_seconds=50 * seconds, min_seconds=1.0, min_queries=500, seed=3)
        return told(tmp_path, load, sleeping(seconds), name=f"{per_second:.0f}")

    peak = find_peak(test, capacity=1 / seconds)
    assert peak.best is not None
    assert 0.85 / seconds / PRECISION <= peak.best.answered_per_second <= 1.01 / seconds


@pytest.mark.timing
@pytest.mark.long  # a busy machine lengthens each wait; `make test` has the same on a clock of its own
def test_at_half_load_queries_wait_as_long_as_queueing_theory_says(tmp_path: Path) -> None:
    """M/D/1: the mean wait is load / (2 (1 - load)) services (Pollaczek and Khinchine), at half load half a service.

    A service is the sleep as it was: on a busy machine somewhat longer than asked for, and the wait grows by its cube.

    By Lindley's recursion the arrivals of this seed wait 0.500 services on average. Other seeds differ by some percent.
    """
    took: list[float] = []
    slept = sleeping(0.04)

    def answer(samples: Sequence[int]) -> None:
        began = time.perf_counter()
        slept(samples)
        took.append(time.perf_counter() - began)

    load = Load(12.5, latency_seconds=1.0, min_seconds=15.0, seed=1103)
    found = told(tmp_path, load, answer)
    service = sum(took) / len(took)
    busy = load.per_second * service
    assert busy == pytest.approx(0.5, rel=0.03)
    assert found.mean_seconds - service == pytest.approx(service * busy / (2 * (1 - busy)), rel=0.05)
