"""Looks that decide about more blocks share one family's error, and their intervals hold at every look."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import special

from accelsweep.analysis.intervals import Family
from accelsweep.analysis.simultaneous_intervals import level_after, nominal_levels, repeated_interval, spent
from accelsweep.config.sweep_options import LOOKS

PUBLISHED = (4.877, 3.357, 2.680, 2.290, 2.031)
"""Five equal looks at 5 % by Lan and DeMets's spending function of O'Brien-Fleming type, as `ldbounds` has them."""


def test_bounds_are_the_published_ones() -> None:
    bounds = -special.ndtri(np.array(nominal_levels(0.05, (1, 2, 3, 4, 5))) / 2.0)
    assert bounds == pytest.approx(PUBLISHED, abs=0.001)


def test_all_of_the_error_is_spent_at_the_last_look_and_next_to_none_at_the_first() -> None:
    assert spent(0.05, 1.0) == pytest.approx(0.05)
    assert spent(0.05, LOOKS[0] / LOOKS[-1]) < 1e-6
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
