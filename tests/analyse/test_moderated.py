"""The moderated variance: Smyth's prior, a cap on what it is worth, and a floor under every interval."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import special

from accelsweep.analysis.intervals import prior_degrees
from accelsweep.analysis.simultaneous_intervals import critical, half_widths, inverse_trigamma, moderate, trigamma

EACH, PLAIN = 1 - 0.05 / 7, 0.95
GENERATOR = np.random.default_rng(1)


def test_trigamma_is_scipys_and_its_inverse_gives_the_argument_back() -> None:
    x = np.geomspace(1e-4, 1e6, 40)
    assert trigamma(x) == pytest.approx(special.polygamma(1, x), rel=1e-12)
    assert inverse_trigamma(trigamma(x)) == pytest.approx(x, rel=1e-6)


def test_beyond_the_range_of_the_iteration_the_limits_stand() -> None:
    assert inverse_trigamma(np.array([1e9, 1e-9])) == pytest.approx([1e-9**0.5, 1e9], rel=1e-3)


@pytest.mark.parametrize(("cells", "degrees"), [(2, 1.0), (8, 4.0), (16, 8.0), (100, 8.0)])
def test_the_prior_is_worth_half_of_the_cells_and_never_more_than_8(cells: int, degrees: float) -> None:
    assert prior_degrees(cells) == degrees
    alike = moderate(np.full(cells + 1, 2.0), np.full(cells + 1, 4.0), cells)
    assert alike.prior_degrees == degrees


def test_variances_that_differ_by_chance_alone_are_worth_the_cap_and_far_ones_less() -> None:
    """The prior's degrees of freedom then solve Smyth's equation: what chance does not explain is their trigamma."""
    far = np.array([1e-4, 1.0, 1e4])
    shown = moderate(far, np.full(3, 2.0), 16)
    spread = np.log(far).var(ddof=1) - special.polygamma(1, 1.0)
    assert float(special.polygamma(1, shown.prior_degrees / 2)) == pytest.approx(spread, rel=1e-6)
    assert shown.prior_degrees < 1.0


def test_a_shrunk_variance_lies_between_its_own_and_the_usual_one_and_keeps_their_order() -> None:
    variances = np.array([0.5, 1.0, 2.0, 3.0])
    shown = moderate(variances, np.full(4, 2.0), 5)
    between = np.sort([variances, np.full(4, shown.prior)], axis=0)
    assert ((between[0] <= shown.variance) & (shown.variance <= between[1])).all()
    assert (np.diff(shown.variance) > 0).all()


def test_no_row_has_more_degrees_of_freedom_than_all_pairs_have_together() -> None:
    assert (moderate(np.array([1.0, 1.1]), np.array([2.0, 2.0]), 100).degrees == 4.0).all()


def test_the_prior_is_right_on_average_whatever_the_number_of_blocks() -> None:
    """The logarithm of a variance of 2 values of noise 1 is -1.27 on average; the correction takes that away."""
    for degrees in (2, 4, 9):
        variances = GENERATOR.chisquare(degrees, size=(4000, 7)) / degrees
        assert np.log(moderate(variances, np.full(7, float(degrees)), 8).prior).mean() == pytest.approx(0.0, abs=0.03)


def test_no_interval_is_narrower_than_the_rows_own_plain_one() -> None:
    variances = np.array([*[1.0] * 12, 8.0])
    widths = half_widths(variances, np.full(13, 3), 14, EACH, PLAIN)
    own = critical(np.full(13, 2.0), PLAIN) * np.sqrt(variances / 3)
    assert widths[12] == own[12]
    assert (widths[:12] > own[:12]).all()


def test_rows_with_different_numbers_of_blocks_share_a_pool() -> None:
    few, many = half_widths(np.array([1.0, 1.0]), np.array([3, 12]), 3, EACH, PLAIN)
    assert many < few


def test_simulated_sweeps_at_once_have_the_intervals_of_each_alone() -> None:
    variances = GENERATOR.chisquare(2, size=(5, 7))
    together = half_widths(variances, np.full(7, 3), 8, EACH, PLAIN)
    alone = [half_widths(one, np.full(7, 3), 8, EACH, PLAIN) for one in variances]
    assert together == pytest.approx(np.array(alone))
