"""The power formula gives the figures of the protocol, agrees with a simulation, and is its own inverse."""

from __future__ import annotations

import math
import random
import statistics

import pytest

from accelsweep.plan.blocks.power import chance_to_see, critical_t, repeats_needed, smallest_visible_effect


@pytest.mark.parametrize(("repeats", "chance"), [(3, 0.09), (5, 0.73), (10, 1.0)])
def test_the_chance_to_see_5_percent_among_20_cells_with_1_percent_noise(repeats: int, chance: float) -> None:
    assert chance_to_see(1.05, repeats, 0.01, family=19) == pytest.approx(chance, abs=0.01)


def test_the_chance_agrees_with_simulated_blocks() -> None:
    generator, seen, sweeps = random.Random(3), 0, 4000
    reach = critical_t(4, 0.95, 7) / math.sqrt(5)
    for _ in range(sweeps):
        pairs = [math.log(1.06) + generator.gauss(0, 0.01) - generator.gauss(0, 0.01) for _ in range(5)]
        seen += statistics.fmean(pairs) - reach * statistics.stdev(pairs) > math.log(1.02)
    assert chance_to_see(1.06, 5, 0.01, family=7, threshold=0.02) == pytest.approx(seen / sweeps, abs=0.025)


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
