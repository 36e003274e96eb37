"""The power of a number of repeats, and the repeats that an effect or a resolution takes."""

from __future__ import annotations

import math

import numpy as np
import pytest

from accelsweep.analysis.intervals import critical_t, prior_degrees
from accelsweep.analysis.statistical_power import (
    PairNoise,
    degrees_of_freedom,
    detection_power,
    repeats_for_resolution,
    repeats_needed,
    smallest_visible_effect,
)


@pytest.mark.parametrize(
    ("repeats", "family", "degrees"), [(2, 7, 2.0), (3, 7, 6.0), (5, 7, 8.0), (3, 31, 10.0), (3, 1, 2.0), (3, 2, 3.5)]
)
def test_a_ratio_has_the_degrees_of_freedom_of_its_moderated_variance(
    repeats: int, family: int, degrees: float
) -> None:
    """Those of its own pairs and of the prior, worth half of the settings; a single ratio has only its own."""
    assert degrees_of_freedom(repeats, family) == degrees


def test_two_ratios_have_no_more_degrees_of_freedom_than_all_their_pairs() -> None:
    assert degrees_of_freedom(3, 2) <= 2 * 2
    assert degrees_of_freedom(100, 1) == 99


def _seen(ratio: float, repeats: int, noise: float, family: int) -> float:
    """Return how often simulated sweeps of equally noisy settings find `ratio` beyond the threshold of 2 %."""
    generator = np.random.default_rng(3)
    logs = generator.normal(0.0, noise, size=(4000, family + 1, repeats))
    pairs = math.log(ratio) + logs[:, 1:] - logs[:, :1]
    own = pairs.var(axis=-1, ddof=1)
    worth = prior_degrees(family + 1)
    shrunk = (worth * own.mean(axis=-1, keepdims=True) + (repeats - 1) * own) / (worth + repeats - 1)
    reach = critical_t(degrees_of_freedom(repeats, family), 0.95, family) * np.sqrt(shrunk / repeats)
    return float((pairs.mean(axis=-1) - reach > math.log(1.02)).mean())


def test_the_chance_agrees_with_simulated_blocks() -> None:
    chance = detection_power(1.05, 5, 0.01, family=7, threshold=0.02)
    assert 0.5 < chance < 0.95
    assert chance == pytest.approx(_seen(1.05, 5, 0.01, 7), abs=0.04)


@pytest.mark.parametrize("family", [1, 7, 1000])
@pytest.mark.parametrize("repeats", [2, 3, 5, 30])
def test_the_smallest_visible_effect_is_seen_with_the_power_asked_for(repeats: int, family: int) -> None:
    effect = smallest_visible_effect(repeats, 0.02, family=family, power=0.9)
    assert effect is not None
    assert detection_power(1.0 + effect, repeats, 0.02, family=family, threshold=0.02) == pytest.approx(0.9, abs=1e-4)


def test_one_repeat_can_show_nothing() -> None:
    assert smallest_visible_effect(1, 0.01) is None
    assert detection_power(10.0, 1, 0.01) == 0.0


def test_without_noise_what_lies_beyond_the_threshold_is_seen() -> None:
    assert detection_power(1.03, 3, 0.0, threshold=0.02) == 1.0
    assert detection_power(1.01, 3, 0.0, threshold=0.02) == 0.0
    assert smallest_visible_effect(3, 0.0, threshold=0.02) == pytest.approx(0.02)


def test_the_repeats_needed_are_the_fewest_that_settle_it() -> None:
    needed = repeats_needed(1.05, 0.01, family=7)
    assert needed is not None
    assert (
        detection_power(1.05 / 1.02, needed, 0.01, family=7)
        >= 0.8
        > detection_power(1.05 / 1.02, needed - 1, 0.01, family=7)
    )
    assert repeats_needed(1 / 1.05, 0.01, family=7) == needed


def test_a_ratio_at_the_threshold_is_never_settled() -> None:
    assert repeats_needed(1.0199, 0.01) is None


def alike(noise: float, count: int = 7) -> list[PairNoise]:
    """Return comparisons of runs that are all equally noisy."""
    return [PairNoise(2.0 * noise**2, 4.0, count)] * count


def test_the_answer_is_the_fewest_blocks_whose_mean_half_width_is_within_the_resolution() -> None:
    needed = repeats_for_resolution(alike(0.06), 7)
    assert needed is not None
    assert 5 < needed.repeats < 20
    for repeats, within in ((needed.repeats, True), (needed.repeats - 1, False)):
        width = critical_t(4.0 + repeats - 1, 0.95, 7) * math.sqrt(2.0 * 0.06**2 / repeats)
        assert (width <= math.log1p(0.1)) is within
        assert needed.half_width == pytest.approx(math.expm1(width)) or not within


def test_there_are_never_fewer_than_5_blocks_however_quiet_the_pilot_looks() -> None:
    needed = repeats_for_resolution(alike(0.001), 7)
    assert needed is not None
    assert (needed.repeats, needed.reached) == (5, True)


def test_noise_that_no_number_of_blocks_overcomes_gets_the_most_and_says_so() -> None:
    needed = repeats_for_resolution(alike(1.0), 7, most=12)
    assert needed is not None
    assert (needed.repeats, needed.reached) == (12, False)
    assert needed.half_width > 0.1


def test_more_comparisons_a_finer_resolution_and_more_noise_take_more_blocks() -> None:
    base = repeats_for_resolution(alike(0.05), 7)
    asked = [
        repeats_for_resolution(alike(0.05), 30),
        repeats_for_resolution(alike(0.05), 7, resolution=0.07),
        repeats_for_resolution(alike(0.07), 7),
    ]
    assert base is not None
    assert all(one is not None and one.repeats > base.repeats for one in asked)


def test_the_mean_counts_so_one_noisy_row_does_not_ask_for_as_much_as_seven() -> None:
    one, seven = (
        repeats_for_resolution([*alike(0.03, 6), PairNoise(0.02)], 7),
        repeats_for_resolution([PairNoise(0.02)] * 7, 7),
    )
    assert one is not None
    assert seven is not None
    assert one.repeats < seven.repeats


def test_without_any_variance_there_is_no_answer() -> None:
    assert repeats_for_resolution([], 3) is None


@pytest.mark.parametrize(("resolution", "most"), [(0.0, 20), (-0.1, 20), (math.nan, 20), (0.1, 4)])
def test_a_resolution_of_nothing_and_a_limit_below_5_are_refused(resolution: float, most: int) -> None:
    with pytest.raises(ValueError, match="resolution must be above 0"):
        repeats_for_resolution(alike(0.01), 7, resolution=resolution, most=most)
