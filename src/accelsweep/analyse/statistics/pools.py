"""Intervals of many paired differences that hold together, with variances moderated over pools of like pairs.

The choice of pairs for a pool is made here, the arithmetic is in `moderated`. A pair stays outside, with an interval of
its own, in three cases. It shares fewer than 3 blocks, its differences are identical, or the pool has no other pair.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from accelsweep.analyse.statistics.intervals import Family, Interval, paired_interval, pairs_up, variance
from accelsweep.analyse.statistics.moderated import Moderated, half_widths, moderate

ValuesOfBlocks = Mapping[Any, float]
"""A side of a pair: its values (log rates, qualities) by the key that pairs them (a block, a seed)."""


@dataclass(frozen=True)
class Pair:
    """Two sides whose mean difference is asked for, and their cells' names. Pairs of one `kind` make a pool."""

    a: ValuesOfBlocks
    b: ValuesOfBlocks
    names: tuple[str, str]
    kind: Hashable = None

    @property
    def differences(self) -> list[float]:
        """The differences a - b, one for each key that both sides have."""
        return [self.a[key] - self.b[key] for key in self.a if key in self.b]


@dataclass(frozen=True)
class Pool:
    """Pairs of one kind, `members` by their position among all pairs, with the differences' variances and numbers."""

    members: tuple[int, ...]
    variances: tuple[float, ...]
    counts: tuple[int, ...]
    cells: int

    @property
    def moderated(self) -> Moderated:
        """The members' variances, shrunk towards each other."""
        return moderate(np.array(self.variances), np.array(self.counts) - 1.0, self.cells)

    def half_widths(self, family: Family) -> list[float]:
        """Return the half width of each member's interval, as part of `family` and never below its own plain one."""
        found = half_widths(np.array(self.variances), np.array(self.counts), self.cells, family.each, family.confidence)
        return [float(one) for one in found]


def pools(pairs: Sequence[Pair]) -> list[Pool]:
    """Return the pools of two or more pairs: of one kind, with 3 or more shared keys each, and with some spread."""
    kinds: dict[Hashable, list[int]] = {}
    for index, pair in enumerate(pairs):
        if _has_spread(pair):
            kinds.setdefault(pair.kind, []).append(index)
    return [_pool(pairs, members) for members in kinds.values() if len(members) > 1]


def _has_spread(pair: Pair) -> bool:
    return pairs_up(pair.a, pair.b) and paired_interval(pair.a, pair.b, Family()).half_width is not None


def _pool(pairs: Sequence[Pair], members: Sequence[int]) -> Pool:
    differences = [pairs[index].differences for index in members]
    cells = {name for index in members for name in pairs[index].names}
    return Pool(
        tuple(members),
        tuple(variance(values) for values in differences),
        tuple(len(values) for values in differences),
        len(cells),
    )


def intervals(
    pairs: Sequence[Pair], family: Family, alone: Callable[[ValuesOfBlocks, ValuesOfBlocks, Family], Interval]
) -> list[Interval]:
    """Return the interval of each pair's mean difference; `alone` gives those of the pairs that are in no pool."""
    found = [alone(pair.a, pair.b, family) for pair in pairs]
    for pool in pools(pairs):
        for index, half_width in zip(pool.members, pool.half_widths(family), strict=True):
            found[index] = Interval(found[index].center, half_width, found[index].count)
    return found
