"""Which pairs learn from each other, and which keep the interval that they have alone."""

from __future__ import annotations

import random

from accelsweep.analysis.intervals import Family, log_ratio, paired_interval
from accelsweep.analysis.simultaneous_intervals import Pair, intervals, pools

GENERATOR = random.Random(1)
FAMILY = Family(5)
BASE = {f"b{block}": GENERATOR.gauss(0, 1) for block in range(4)}


def pair(name: str, noise: float = 1.0, blocks: int = 4, kind: str = "cpu") -> Pair:
    """Return a cell beside BASE in its first `blocks` blocks."""
    shared = list(BASE)[:blocks]
    return Pair({block: BASE[block] + GENERATOR.gauss(2, noise) for block in shared}, BASE, (name, "base"), kind)


def test_pairs_of_one_kind_are_a_pool_and_their_cells_are_counted_once() -> None:
    (pool,) = pools([pair("a"), pair("b"), pair("c")])
    assert (pool.members, pool.cells, pool.counts) == ((0, 1, 2), 4, (4, 4, 4))


def test_each_kind_of_hardware_has_a_prior_of_its_own() -> None:
    mixed = [pair("a"), pair("b", 50.0, kind="gpu"), pair("c"), pair("d", 50.0, kind="gpu")]
    assert [pool.members for pool in pools(mixed)] == [(0, 2), (1, 3)]
    quiet = [mixed[0], mixed[2]]
    assert [intervals(mixed, FAMILY, log_ratio)[index] for index in (0, 2)] == intervals(quiet, FAMILY, log_ratio)


def test_a_lone_pair_one_of_few_blocks_and_one_without_spread_keep_their_own_intervals() -> None:
    still = Pair({block: value + 2.0 for block, value in BASE.items()}, BASE, ("s", "base"), "cpu")
    outside = [pair("alone", kind="gpu"), pair("few", blocks=2), still]
    among = intervals([*outside, pair("a"), pair("b")], FAMILY, log_ratio)
    assert among[:3] == [log_ratio(one.a, one.b, FAMILY) for one in outside]
    assert among[2].half_width is None
    assert among[3:] != [log_ratio(BASE, BASE, FAMILY)] * 2


def test_the_centre_of_an_interval_is_the_pairs_own_whatever_the_others_show() -> None:
    asked = [pair("a"), pair("b", 30.0), pair("c")]
    centers = [paired_interval(one.a, one.b, FAMILY).center for one in asked]
    assert [one.center for one in intervals(asked, FAMILY, paired_interval)] == centers
