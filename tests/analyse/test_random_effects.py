"""Variance components hold what they are said to hold, whatever the fleet's size, and estimate what textbooks do."""

from __future__ import annotations

import math

import numpy as np
import pytest

from accelsweep.features.fleet.statistics import components

FLEETS = 600
LEFT_TO_CHANCE = 0.022
"""Two and a half standard errors of a share of 95 % in so many fleets."""


def test_the_estimates_are_those_of_the_analysis_of_variance() -> None:
    """Means 2, 4 and 9 with a variance of 1 in each group: MS between 2 * 13 = 26, MS within 1, so (26 - 1) / 2."""
    half = math.sqrt(0.5)
    found = components([[level - half, level + half] for level in (2.0, 4.0, 9.0)], 0.95)
    assert found is not None
    assert found.between.value == pytest.approx(math.sqrt(12.5))
    assert found.within.value == pytest.approx(1.0)
    assert (found.groups, found.degrees) == (3, 3)
    assert found.within.low == pytest.approx(math.sqrt(3 / 9.3484036))  # chi-square with 3 degrees of freedom
    assert found.within.high == pytest.approx(math.sqrt(3 / 0.2157953))


def test_groups_that_differ_by_their_noise_alone_have_a_component_of_0_whose_interval_holds_0() -> None:
    found = components([[1.0, 3.0], [3.2, 1.2], [1.4, 2.4]], 0.95)
    assert found is not None
    assert (found.between.value, found.between.low) == (0.0, 0.0)
    assert found.between.high > 0.3


@pytest.mark.parametrize("second", [[1.1, 2.1], [5.0, 6.0]], ids=["alike", "far apart"])
def test_two_groups_are_too_few_for_an_interval_between_them(second: list[float]) -> None:
    found = components([[1.0, 2.0], second], 0.95)
    assert found is not None
    assert (found.between.low, found.between.high) == (None, None)
    assert found.between.reason == "2 groups are too few for an interval: it takes 3"
    assert found.within.high > found.within.value > found.within.low > 0


def test_groups_with_almost_the_same_mean_are_not_said_to_be_equal_for_sure() -> None:
    """The exact interval is [0, 0]: so close together the means of such noisy values come by chance."""
    found = components([[0.0, 10.0], [0.001, 10.001], [0.002, 10.002], [0.001, 10.0]], 0.95)
    assert found is not None
    assert (found.between.value, found.between.high) == (0.0, None)
    assert found.between.reason == "the groups differ less than their own values let them"


@pytest.mark.parametrize("groups", [[[1.0, 2.0]], [[1.0], [2.0], [3.0, 4.0]], [[1.0, 1.0], [2.0, 2.0]]])
def test_what_tells_nothing_of_both_components_has_none(groups: list[list[float]]) -> None:
    assert components(groups, 0.95) is None


@pytest.mark.parametrize(
    ("between", "counts"),
    [(0.0063, [3] * 4), (0.0063, [3] * 16), (0.001, [3] * 8), (0.0063, [2, 3, 3, 5, 3, 4, 3, 3])],
)
def test_intervals_of_both_components_hold_the_truth(between: float, counts: list[int]) -> None:
    random, within, held = np.random.default_rng(5), 0.003, np.zeros(2)
    for _ in range(FLEETS):
        levels = random.normal(0.0, between, len(counts))
        found = components(
            [list(level + random.normal(0.0, within, count)) for level, count in zip(levels, counts, strict=True)], 0.95
        )
        assert found is not None
        held += [
            found.between.high is None or found.between.low <= between <= found.between.high,
            found.within.low <= within <= found.within.high,
        ]
    assert (held / FLEETS >= 0.95 - LEFT_TO_CHANCE).all(), held / FLEETS
