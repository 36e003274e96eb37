"""`repeats: auto`: the fewest blocks whose intervals are narrow enough, from variances alone."""

from __future__ import annotations

import math

import pytest

from accelsweep.analysis.intervals import critical_t
from accelsweep.analysis.power import PairNoise, repeats_for


def alike(noise: float, count: int = 7) -> list[PairNoise]:
    """Return comparisons of runs that are all equally noisy."""
    return [PairNoise(2.0 * noise**2, 4.0, count)] * count


def test_the_answer_is_the_fewest_blocks_whose_mean_half_width_is_within_the_resolution() -> None:
    needed = repeats_for(alike(0.06), 7)
    assert needed is not None
    assert 5 < needed.repeats < 20
    for repeats, within in ((needed.repeats, True), (needed.repeats - 1, False)):
        width = critical_t(4.0 + repeats - 1, 0.95, 7) * math.sqrt(2.0 * 0.06**2 / repeats)
        assert (width <= math.log1p(0.1)) is within
        assert needed.half_width == pytest.approx(math.expm1(width)) or not within


def test_there_are_never_fewer_than_5_blocks_however_quiet_the_pilot_looks() -> None:
    needed = repeats_for(alike(0.001), 7)
    assert needed is not None
    assert (needed.repeats, needed.reached) == (5, True)


def test_noise_that_no_number_of_blocks_overcomes_gets_the_most_and_says_so() -> None:
    needed = repeats_for(alike(1.0), 7, most=12)
    assert needed is not None
    assert (needed.repeats, needed.reached) == (12, False)
    assert needed.half_width > 0.1


def test_more_comparisons_a_finer_resolution_and_more_noise_take_more_blocks() -> None:
    base = repeats_for(alike(0.05), 7)
    asked = [repeats_for(alike(0.05), 30), repeats_for(alike(0.05), 7, resolution=0.07), repeats_for(alike(0.07), 7)]
    assert base is not None
    assert all(one is not None and one.repeats > base.repeats for one in asked)


def test_the_mean_counts_so_one_noisy_row_does_not_ask_for_as_much_as_seven() -> None:
    one, seven = repeats_for([*alike(0.03, 6), PairNoise(0.02)], 7), repeats_for([PairNoise(0.02)] * 7, 7)
    assert one is not None
    assert seven is not None
    assert one.repeats < seven.repeats


def test_without_any_variance_there_is_no_answer() -> None:
    assert repeats_for([], 3) is None


@pytest.mark.parametrize(("resolution", "most"), [(0.0, 20), (-0.1, 20), (math.nan, 20), (0.1, 4)])
def test_a_resolution_of_nothing_and_a_limit_below_5_are_refused(resolution: float, most: int) -> None:
    with pytest.raises(ValueError, match="resolution above 0"):
        repeats_for(alike(0.01), 7, resolution=resolution, most=most)
