"""A change of a series' level is found where it is supported, and nowhere else."""

from __future__ import annotations

import math
import random

import pytest

from accelsweep.analysis.intervals import Family
from accelsweep.features.history.lines import MIN_POINTS, Level, level_steps


def series(levels: list[float], *, noise: float = 0.004, between: float = 0.0, seed: int = 1) -> list[Level]:
    """Points of three repeats each around these rates; `between` is the noise that a point's repeats share."""
    draw = random.Random(seed)
    points = []
    for level in levels:
        shared = math.log(level) + draw.gauss(0.0, between)
        points.append(Level.of([shared + draw.gauss(0.0, noise) for _ in range(3)]))
    return points


def found(points: list[Level]) -> list[int]:
    return [step.at for step in level_steps(points, Family(len(points) - 1))]


def test_each_step_is_found_with_its_size() -> None:
    points = series([100.0] * 6 + [95.0] * 5 + [106.0] * 4)
    steps = level_steps(points, Family(14))
    assert [step.at for step in steps] == [6, 11]
    for step, ratio in zip(steps, (0.95, 106.0 / 95.0), strict=True):
        low, high = step.interval.low, step.interval.high
        assert low is not None
        assert high is not None
        assert low < math.log(ratio) < high
        assert low * high > 0, "the interval holds no zero"


def test_a_change_at_the_last_commit_is_found() -> None:
    assert found(series([100.0] * 9 + [93.0])) == [9]


@pytest.mark.parametrize("between", [0.0, 0.01])
def test_series_without_a_change_have_one_in_at_most_five_of_a_hundred(between: float) -> None:
    alarms = sum(bool(found(series([100.0] * 12, between=between, seed=seed))) for seed in range(300))
    assert alarms <= 300 * 0.05 + 8, "two standard deviations above 5 %"


def test_a_change_within_the_noise_of_the_repeats_is_none() -> None:
    """The points happen to lie close together, but what each of them rests on scatters widely."""
    points = [Level(math.log(rate), 0.02**2) for rate in (100.0, 100.1, 99.9, 100.0, 98.0, 98.1, 97.9, 98.0)]
    assert found(points) == []
    sure = [Level(point.value, 0.001**2) for point in points]
    assert found(sure) == [4]


def test_a_point_whose_own_repeats_scatter_widely_makes_no_change() -> None:
    calm = [Level(math.log(rate), 1e-8) for rate in (100.0, 100.1, 99.9, 100.0, 100.1, 99.9, 100.0)]
    assert found([*calm, Level(math.log(90.0), 0.05**2)]) == []
    assert found([*calm, Level(math.log(90.0), 0.001**2)]) == [7]


def test_too_few_points_have_no_change() -> None:
    few = series([100.0] * (MIN_POINTS - 2) + [50.0])
    assert len(few) == MIN_POINTS - 1
    assert found(few) == []


def test_identical_points_do_not_mean_that_there_is_no_noise() -> None:
    assert found([Level(math.log(rate), None) for rate in [100.0] * 4 + [90.0] * 4]) == []
