"""Pools of pairs share moderated variances, and repeated looks share one error."""

from __future__ import annotations

import math
import random

import numpy as np
import pytest
from scipy import special

from accelsweep.analysis.intervals import Family, log_ratio, paired_interval, prior_degrees
from accelsweep.analysis.simultaneous_intervals import (
    Pair,
    alpha_spent,
    critical,
    half_widths,
    inverse_trigamma,
    level_after,
    moderate,
    nominal_levels,
    pools,
    repeated_interval,
    simultaneous_intervals,
    trigamma,
)
from accelsweep.config.sweep_options import LOOKS

EACH, PLAIN = 1 - 0.05 / 7, 0.95
GENERATOR = np.random.default_rng(1)


def test_trigamma_is_scipys_and_its_inverse_gives_the_argument_back() -> None:
    x = np.geomspace(1e-4, 1e6, 40)
    assert trigamma(x) == pytest.approx(special.polygamma(1, x), rel=1e-12)
    assert inverse_trigamma(trigamma(x)) == pytest.approx(x, rel=1e-6)


def test_beyond_the_range_of_the_iteration_the_limits_stand() -> None:
    assert inverse_trigamma(np.array([1e9, 1e-9])) == pytest.approx([1e-9**0.5, 1e9], rel=1e-3)


@pytest.mark.parametrize(("settings", "degrees"), [(2, 1.0), (8, 4.0), (16, 8.0), (100, 8.0)])
def test_the_prior_is_worth_half_of_the_settings_and_never_more_than_8(settings: int, degrees: float) -> None:
    assert prior_degrees(settings) == degrees
    alike = moderate(np.full(settings + 1, 2.0), np.full(settings + 1, 4.0), settings)
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


POOLS_GENERATOR = random.Random(1)
FAMILY = Family(5)
BASE = {f"b{block}": POOLS_GENERATOR.gauss(0, 1) for block in range(4)}


def pair(name: str, noise: float = 1.0, blocks: int = 4, kind: str = "cpu") -> Pair:
    """Return a setting beside BASE in its first `blocks` blocks."""
    shared = list(BASE)[:blocks]
    return Pair({block: BASE[block] + POOLS_GENERATOR.gauss(2, noise) for block in shared}, BASE, (name, "base"), kind)


def test_pairs_of_one_kind_are_a_pool_and_their_settings_are_counted_once() -> None:
    (pool,) = pools([pair("a"), pair("b"), pair("c")])
    assert (pool.members, pool.settings, pool.counts) == ((0, 1, 2), 4, (4, 4, 4))


def test_each_kind_of_hardware_has_a_prior_of_its_own() -> None:
    mixed = [pair("a"), pair("b", 50.0, kind="gpu"), pair("c"), pair("d", 50.0, kind="gpu")]
    assert [pool.members for pool in pools(mixed)] == [(0, 2), (1, 3)]
    quiet = [mixed[0], mixed[2]]
    assert [simultaneous_intervals(mixed, FAMILY, log_ratio)[index] for index in (0, 2)] == simultaneous_intervals(
        quiet, FAMILY, log_ratio
    )


def test_a_lone_pair_one_of_few_blocks_and_one_without_spread_keep_their_own_intervals() -> None:
    still = Pair({block: value + 2.0 for block, value in BASE.items()}, BASE, ("s", "base"), "cpu")
    outside = [pair("alone", kind="gpu"), pair("few", blocks=2), still]
    among = simultaneous_intervals([*outside, pair("a"), pair("b")], FAMILY, log_ratio)
    assert among[:3] == [log_ratio(one.a, one.b, FAMILY) for one in outside]
    assert among[2].half_width is None
    assert among[3:] != [log_ratio(BASE, BASE, FAMILY)] * 2


def test_the_centre_of_an_interval_is_the_pairs_own_whatever_the_others_show() -> None:
    asked = [pair("a"), pair("b", 30.0), pair("c")]
    centers = [paired_interval(one.a, one.b, FAMILY).center for one in asked]
    assert [one.center for one in simultaneous_intervals(asked, FAMILY, paired_interval)] == centers


PUBLISHED = (4.877, 3.357, 2.680, 2.290, 2.031)
"""Five equal looks at 5 % by Lan and DeMets's spending function of O'Brien-Fleming type, as `ldbounds` has them."""


def test_bounds_are_the_published_ones() -> None:
    bounds = -special.ndtri(np.array(nominal_levels(0.05, (1, 2, 3, 4, 5))) / 2.0)
    assert bounds == pytest.approx(PUBLISHED, abs=0.001)


def test_all_of_the_error_is_spent_at_the_last_look_and_next_to_none_at_the_first() -> None:
    assert alpha_spent(0.05, 1.0) == pytest.approx(0.05)
    assert alpha_spent(0.05, LOOKS[0] / LOOKS[-1]) < 1e-6
    assert nominal_levels(0.05)[-1] < 0.05


def test_looks_at_equal_sides_are_wrong_in_five_of_a_hundred_sweeps_together() -> None:
    differences = np.random.default_rng(1).normal(size=(20_000, LOOKS[-1]))
    wrong = np.zeros(len(differences), dtype=bool)
    for look in LOOKS:
        seen = differences[:, :look]
        critical = special.stdtrit(look - 1, 1.0 - level_after(look, 0.05) / 2.0)
        wrong |= np.abs(seen.mean(axis=1)) > critical * seen.std(axis=1, ddof=1) / math.sqrt(look)
    assert wrong.mean() == pytest.approx(0.05, abs=0.006)


def test_between_two_looks_the_earlier_ones_level_holds_and_before_the_first_there_is_none() -> None:
    assert level_after(7, 0.05) == level_after(5, 0.05)
    assert level_after(30, 0.05) == level_after(20, 0.05)
    assert level_after(2, 0.05) == 0.0


def test_an_early_interval_is_far_wider_than_a_late_one_of_the_same_spread() -> None:
    widths = []
    for blocks in (5, 20):
        a = {str(block): 0.01 * (-1) ** block for block in range(blocks)}
        b = {str(block): 0.0 for block in range(blocks)}
        widths.append(repeated_interval(a, b, Family(2, 0.95)).half_width)
    assert widths[0] > 10 * widths[1]


def test_sides_without_common_blocks_have_an_interval_on_which_no_verdict_rests() -> None:
    found = repeated_interval({"a": 0.1, "b": 0.2}, {"c": 0.1, "d": 0.3}, Family())
    assert found.center == pytest.approx(-0.05)
