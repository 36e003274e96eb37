"""Variance components agree with textbook formulas, and their intervals have the stated coverage."""

from __future__ import annotations

import math

import numpy as np
import pytest

from accelsweep.features.fleet.statistics import variance_components

FLEETS = 600
MARGIN = 0.022
"""Two and a half standard errors of a coverage of 95 % in FLEETS simulations."""


def test_the_estimates_are_those_of_the_analysis_of_variance() -> None:
    """Means 2, 4 and 9 with a variance of 1 in each group: MS between 2 * 13 = 26, MS within 1, so (26 - 1) / 2."""
    half = math.sqrt(0.5)
    components = variance_components([[level - half, level + half] for level in (2.0, 4.0, 9.0)], 0.95)
    assert components is not None
    assert components.between.value == pytest.approx(math.sqrt(12.5))
    assert components.within.value == pytest.approx(1.0)
    assert (components.groups, components.degrees) == (3, 3)
    assert components.within.low == pytest.approx(math.sqrt(3 / 9.3484036))  # chi-square with 3 degrees of freedom
    assert components.within.high == pytest.approx(math.sqrt(3 / 0.2157953))


def test_groups_that_differ_by_noise_alone_have_no_variance_between_them() -> None:
    components = variance_components([[1.0, 3.0], [3.2, 1.2], [1.4, 2.4]], 0.95)
    assert components is not None
    assert (components.between.value, components.between.low) == (0.0, 0.0)
    assert components.between.high > 0.3


@pytest.mark.parametrize("second", [[1.1, 2.1], [5.0, 6.0]], ids=["alike", "far apart"])
def test_two_groups_are_too_few_for_an_interval(second: list[float]) -> None:
    components = variance_components([[1.0, 2.0], second], 0.95)
    assert components is not None
    assert (components.between.low, components.between.high) == (None, None)
    assert components.between.reason == "2 groups are too few for an interval, which needs 3"
    assert components.within.high > components.within.value > components.within.low > 0


def test_groups_with_almost_equal_means_are_not_reported_as_equal_with_certainty() -> None:
    """The formula gives [0, 0], because the means are closer together than the noise explains."""
    components = variance_components([[0.0, 10.0], [0.001, 10.001], [0.002, 10.002], [0.001, 10.0]], 0.95)
    assert components is not None
    assert (components.between.value, components.between.high) == (0.0, None)
    assert components.between.reason == "the groups differ by less than the noise within them explains"


@pytest.mark.parametrize("groups", [[[1.0, 2.0]], [[1.0], [2.0], [3.0, 4.0]], [[1.0, 1.0], [2.0, 2.0]]])
def test_groups_that_do_not_identify_both_components_have_none(groups: list[list[float]]) -> None:
    assert variance_components(groups, 0.95) is None


@pytest.mark.parametrize(
    ("between", "counts"),
    [(0.0063, [3] * 4), (0.0063, [3] * 16), (0.001, [3] * 8), (0.0063, [2, 3, 3, 5, 3, 4, 3, 3])],
)
def test_intervals_of_both_components_cover_the_truth(between: float, counts: list[int]) -> None:
    random, within, covered = np.random.default_rng(5), 0.003, np.zeros(2)
    for _ in range(FLEETS):
        levels = random.normal(0.0, between, len(counts))
        components = variance_components(
            [list(level + random.normal(0.0, within, count)) for level, count in zip(levels, counts, strict=True)], 0.95
        )
        assert components is not None
        covered += [
            components.between.high is None or components.between.low <= between <= components.between.high,
            components.within.low <= within <= components.within.high,
        ]
    assert (covered / FLEETS >= 0.95 - MARGIN).all(), covered / FLEETS
