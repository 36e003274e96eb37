"""A slow node is detected, healthy ones rarely are, and intervals agree with the corrected p-values."""

from __future__ import annotations

import math

import numpy as np
import pytest

from accelsweep.analysis.intervals import Family, welch_interval
from accelsweep.features.fleet.statistics import Deviation, deviations_from_others, holm

FLEETS = 400
BOUND = -math.log1p(0.015)


def fleet(random: np.random.Generator, levels: np.ndarray, noise: float | np.ndarray, rounds: int) -> list[list[float]]:
    scattered = random.normal(size=(len(levels), rounds)) * np.reshape(noise, (-1, 1))
    return [list(row) for row in levels[:, np.newaxis] + scattered]


def slower(groups: list[list[float]]) -> np.ndarray:
    """Return which nodes are slower than the tolerance at 95 % by Holm's correction."""
    return (
        np.array(holm([deviation.p_value_below(BOUND, 0.95) for deviation in deviations_from_others(groups)])) <= 0.05
    )


def test_holms_correction_is_that_of_his_paper() -> None:
    assert holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert holm([0.9, 0.6]) == [1.0, 1.0]
    assert holm([]) == []


def test_a_deviation_is_from_the_mean_of_the_others() -> None:
    deviations = deviations_from_others([[1.0, 1.2], [2.0, 2.2], [6.0, 6.2]])
    assert [deviation.center for deviation in deviations] == pytest.approx([-3.0, -1.5, 4.5])
    plain = welch_interval([1.0, 1.2], [4.0, 4.2], Family())
    assert plain.half_width is not None
    assert deviations[0].error < plain.half_width


def test_a_node_two_per_cent_slower_is_detected_among_eight_and_no_other_is() -> None:
    random, detected = np.random.default_rng(3), np.zeros(8)
    levels = np.array([-0.02, *[0.0] * 7])
    for _ in range(FLEETS):
        detected += slower(fleet(random, levels, 0.001, 3))
    assert detected[0] >= 0.95 * FLEETS
    assert detected[1:].sum() <= 0.01 * FLEETS


@pytest.mark.parametrize("noise", [0.002, 0.01, np.array([0.03, *[0.003] * 7])])
def test_nodes_within_the_tolerance_are_rarely_called_slower(noise: float | np.ndarray) -> None:
    """Nodes differ by 0.63 %. The first is exactly at the tolerance, and may be ten times as noisy as the others."""
    random, wrong = np.random.default_rng(4), 0
    for _ in range(FLEETS):
        levels = random.normal(0.0, 0.0063, 8)
        levels[0] = levels[1:].mean() + BOUND
        others = (levels.sum() - levels) / 7
        wrong += bool((slower(fleet(random, levels, noise, 3)) & (levels - others >= BOUND - 1e-12)).any())
    assert wrong <= 0.05 * FLEETS


@pytest.mark.parametrize("noise", [0.003, np.array([0.006, *[0.003] * 7])])
def test_the_intervals_of_all_nodes_have_simultaneous_coverage(noise: float | np.ndarray) -> None:
    random, covered = np.random.default_rng(6), 0
    for _ in range(FLEETS):
        levels = random.normal(0.0, 0.0063, 8)
        truth = levels - (levels.sum() - levels) / 7
        intervals = [
            deviation.interval(Family(8)) for deviation in deviations_from_others(fleet(random, levels, noise, 3))
        ]
        covered += all(interval.low <= true <= interval.high for interval, true in zip(intervals, truth, strict=True))
    assert covered >= (0.95 - 0.027) * FLEETS


@pytest.mark.parametrize("center", [-0.02, -0.0243, -0.0244, -0.0245, -0.0246, -0.03])
def test_for_the_smallest_p_value_the_interval_decides(center: float) -> None:
    deviation = Deviation(center, 0.002, 6.0, 0.0005, 3)
    is_below = deviation.interval(Family(4)).high < BOUND
    assert is_below == (4 * deviation.p_value_below(BOUND, 0.95) < 0.05)


def test_negation_mirrors_the_deviation() -> None:
    deviation = Deviation(3.0, 1.0, 6.0, 0.5, 3)
    assert (-deviation).p_value_below(-1.0, 0.95) == Deviation(-3.0, 1.0, 6.0, 0.5, 3).p_value_below(-1.0, 0.95)


@pytest.mark.parametrize(
    ("values", "reason"), [([1.0], "one round shows no spread"), ([1.0, 1.0, 1.0], "all 3 values are identical")]
)
def test_a_node_without_spread_has_a_reason_instead_of_an_interval(values: list[float], reason: str) -> None:
    deviations = deviations_from_others([values, [2.0, 2.1], [2.0, 2.2]])
    assert deviations[0].interval(Family(3)).low is None
    assert (deviations[0].reason or "").startswith(reason)
    assert deviations[0].p_value_below(BOUND, 0.95) == 1.0
    assert deviations[1].interval(Family(3)).half_width is not None
