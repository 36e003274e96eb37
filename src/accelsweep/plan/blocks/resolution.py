"""How many blocks `repeats: auto` takes: from the variances that a pilot of 3 blocks shows, never from an effect.

Stein's two-stage rule (C. Stein, "A two-sample test for a linear hypothesis whose power is independent of the
variance", Annals of Mathematical Statistics 1945), with the pilot's moderated variances in place of one variance.
Means and variances of normal values are independent, so a number of blocks that follows from the variances alone leaves
the final intervals their coverage, also with the pilot's blocks in them; benchmarks/coverage.py simulates it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean

from accelsweep.plan.blocks.power import critical_t

PILOT = 3
"""Blocks of the pilot, and the fewest that a comparison takes."""


@dataclass(frozen=True)
class PairNoise:
    """What the pilot shows of one comparison's noise.

    `variance` is that of a paired log difference (moderated where it is in a pool of `pool` comparisons, whose prior is
    worth `prior_degrees` degrees of freedom; 1 and 0 where it stands alone).
    """

    variance: float
    prior_degrees: float = 0.0
    pool: int = 1


@dataclass(frozen=True)
class Needed:
    """The answer: `repeats` blocks in all, the pilot's included, and the mean half width that they should give.

    `half_width` is a share of the ratio (0.1 is 10 %). `reached` is False where even the most blocks do not get there.
    """

    repeats: int
    half_width: float
    reached: bool


def repeats_for(
    noise: Sequence[PairNoise], family: int, *, resolution: float = 0.1, most: int = 20, confidence: float = 0.95
) -> Needed | None:
    """Return the fewest blocks, from 3 to `most`, whose intervals are `resolution` wide to each side on average.

    `family` counts the intervals that hold together, those without a variance among them. None without any variance:
    nothing was measured often enough, or nothing varied, and then there is no reason to go on. Raises ValueError for a
    `resolution` that is not above 0, or for `most` below 3.
    """
    if resolution <= 0.0 or most < PILOT:
        raise ValueError(f"a resolution above 0 and 3 or more repeats at most are needed, not {resolution}, {most}")
    if not noise:
        return None
    widths = ((repeats, _mean_half_width(noise, family, repeats, confidence)) for repeats in range(PILOT, most + 1))
    last = (PILOT, math.inf)
    for last in widths:
        if last[1] <= math.log1p(resolution):
            return Needed(last[0], math.expm1(last[1]), True)
    return Needed(last[0], math.expm1(last[1]), False)


def _mean_half_width(noise: Sequence[PairNoise], family: int, repeats: int, confidence: float) -> float:
    """Return the mean half width after so many blocks if the variances stay as they are; in units of log ratios."""
    return fmean(
        critical_t(_degrees(one, repeats), confidence, family) * math.sqrt(one.variance / repeats) for one in noise
    )


def _degrees(one: PairNoise, repeats: int) -> float:
    return min(one.prior_degrees + repeats - 1, one.pool * (repeats - 1.0))
