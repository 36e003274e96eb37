"""The power formula agrees with a simulation of the moderated interval, and is its own inverse."""

from __future__ import annotations

import math

import numpy as np
import pytest

from accelsweep.analysis.intervals import critical_t, prior_degrees
from accelsweep.analysis.power import chance_to_see, degrees_of_freedom, repeats_needed, smallest_visible_effect


@pytest.mark.parametrize(
    ("repeats", "family", "degrees"), [(2, 7, 2.0), (3, 7, 6.0), (5, 7, 8.0), (3, 31, 10.0), (3, 1, 2.0), (3, 2, 3.5)]
)
def test_a_ratio_has_the_degrees_of_freedom_of_its_moderated_variance(
    repeats: int, family: int, degrees: float
) -> None:
    """Those of its own pairs and of the prior, which half of the cells are worth; a single ratio has only its own."""
    assert degrees_of_freedom(repeats, family) == degrees


def test_two_ratios_have_no_more_degrees_of_freedom_than_all_their_pairs() -> None:
    assert degrees_of_freedom(3, 2) <= 2 * 2
    assert degrees_of_freedom(100, 1) == 99


def _seen(ratio: float, repeats: int, noise: float, family: int) -> float:
    """Return how often simulated sweeps of equally noisy cells find `ratio` beyond the threshold of 2 %."""
    generator = np.random.default_rng(3)
    logs = generator.normal(0.0, noise, size=(4000, family + 1, repeats))
    pairs = math.log(ratio) + logs[:, 1:] - logs[:, :1]
    own = pairs.var(axis=-1, ddof=1)
    worth = prior_degrees(family + 1)
    shrunk = (worth * own.mean(axis=-1, keepdims=True) + (repeats - 1) * own) / (worth + repeats - 1)
    reach = critical_t(degrees_of_freedom(repeats, family), 0.95, family) * np.sqrt(shrunk / repeats)
    return float((pairs.mean(axis=-1) - reach > math.log(1.02)).mean())


def test_the_chance_agrees_with_simulated_blocks() -> None:
    chance = chance_to_see(1.05, 5, 0.01, family=7, threshold=0.02)
    assert 0.5 < chance < 0.95
    assert chance == pytest.approx(_seen(1.05, 5, 0.01, 7), abs=0.04)


@pytest.mark.parametrize("family", [1, 7, 1000])
@pytest.mark.parametrize("repeats", [2, 3, 5, 30])
def test_the_smallest_visible_effect_is_seen_with_the_power_asked_for(repeats: int, family: int) -> None:
    effect = smallest_visible_effect(repeats, 0.02, family=family, power=0.9)
    assert effect is not None
    assert chance_to_see(1.0 + effect, repeats, 0.02, family=family, threshold=0.02) == pytest.approx(0.9, abs=1e-4)


def test_one_repeat_can_show_nothing() -> None:
    assert smallest_visible_effect(1, 0.01) is None
    assert chance_to_see(10.0, 1, 0.01) == 0.0


def test_without_noise_what_lies_beyond_the_threshold_is_seen() -> None:
    assert chance_to_see(1.03, 3, 0.0, threshold=0.02) == 1.0
    assert chance_to_see(1.01, 3, 0.0, threshold=0.02) == 0.0
    assert smallest_visible_effect(3, 0.0, threshold=0.02) == pytest.approx(0.02)


def test_the_repeats_needed_are_the_fewest_that_settle_it() -> None:
    needed = repeats_needed(1.05, 0.01, family=7)
    assert needed is not None
    assert (
        chance_to_see(1.05 / 1.02, needed, 0.01, family=7)
        >= 0.8
        > chance_to_see(1.05 / 1.02, needed - 1, 0.01, family=7)
    )
    assert repeats_needed(1 / 1.05, 0.01, family=7) == needed


def test_a_ratio_at_the_threshold_is_never_settled() -> None:
    assert repeats_needed(1.0199, 0.01) is None
