"""The search for the highest load, with tests whose result is known."""

from __future__ import annotations

import math
import random
from dataclasses import replace

import pytest

from accelsweep.features.serving.loadgen import PRECISION, Load, LoadTest, find_peak


class Judge:
    """Lets every load up to `limit` pass."""

    def __init__(self, limit: float) -> None:
        self.limit = limit
        self.loads: list[float] = []

    def __call__(self, per_second: float) -> LoadTest:
        self.loads.append(per_second)
        invalid = None if per_second <= self.limit else f"late above {self.limit:g}"
        return LoadTest(Load(per_second), invalid, 1000, per_second, 0.01, {}, 1.0)


@pytest.mark.parametrize("limit", [3.0, 40.0, 69.0, 71.0, 99.0, 130.0, 800.0])
def test_the_highest_load_is_found_whether_the_hint_was_too_high_or_too_low(limit: float) -> None:
    judge = Judge(limit)
    peak = find_peak(judge, capacity=100.0)
    assert peak.best is not None
    assert limit / PRECISION <= peak.best.answered_per_second <= limit
    assert peak.tests == len(judge.loads) <= 20


def test_a_good_hint_needs_few_tests() -> None:
    assert find_peak(Judge(85.0), capacity=100.0).tests <= 7


def test_a_load_that_never_passes_is_given_up_with_the_last_reason() -> None:
    judge = Judge(0.001)
    peak = find_peak(judge, capacity=100.0)
    assert peak.best is None
    assert peak.refused.invalid == "late above 0.001"
    assert peak.refused.load.per_second == min(judge.loads)
    assert peak.tests <= 12


@pytest.mark.parametrize("hiccup", range(6))
def test_one_hiccup_does_not_end_the_search_wherever_it_comes(hiccup: int) -> None:
    judge = Judge(90.0)

    def test(per_second: float) -> LoadTest:
        told = judge(per_second)
        return replace(told, invalid="a hiccup") if len(judge.loads) == 1 + hiccup else told

    peak = find_peak(test, capacity=100.0)
    assert peak.best is not None
    assert 90.0 / PRECISION <= peak.best.answered_per_second <= 90.0


def test_the_load_that_ends_the_search_was_refused_twice() -> None:
    judge = Judge(90.0)
    refused = find_peak(judge, capacity=100.0).refused.load.per_second
    assert judge.loads.count(refused) == 2


@pytest.mark.parametrize("seed", range(20))
def test_a_search_ends_soon_where_chance_decides(seed: int) -> None:
    chance = random.Random(seed)

    def test(per_second: float) -> LoadTest:
        return Judge(90.0 * math.exp(chance.gauss(0.0, 0.3)))(per_second)

    assert find_peak(test, capacity=100.0).tests <= 20
