"""The number of blocks for `repeats: auto`: from the variances in a pilot of 3 blocks, never from an effect.

This is Stein's two-stage rule with the pilot's moderated variances in place of one variance (C. Stein, "A two-sample
test for a linear hypothesis whose power is independent of the variance", Annals of Mathematical Statistics 1945). Stein
keeps the pilot's variance for the interval; here all blocks are analysed. Where few blocks follow because the pilot
happened to look quiet, the final variance is too small as well. So there are never fewer than 5 blocks: with 3 the
simulated coverage fell below 94 % for four cells and a noisy baseline. The simulation is benchmarks/coverage.py.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean

from accelsweep.core.planned.settings import CONFIDENCE, REPEATS_MOST, RESOLUTION
from accelsweep.repeats.student import critical_t

FEWEST_BLOCKS = 5
"""The fewest blocks in all; published results rest on at least as many."""


@dataclass(frozen=True)
class PairNoise:
    """The noise of one comparison in the pilot.

    `variance` is that of a paired log difference. It is moderated where it is in a pool of `pool` comparisons, whose
    prior is worth `prior_degrees` degrees of freedom. These are 1 and 0 where it stands alone.
    """

    variance: float
    prior_degrees: float = 0.0
    pool: int = 1


@dataclass(frozen=True)
class Needed:
    """The answer: `repeats` blocks in all, the pilot's included, and the mean half width that they should give.

    `half_width` is a share of the ratio (0.1 is 10 %). `reached` is False where even the most blocks do not reach the
    resolution.
    """

    repeats: int
    half_width: float
    reached: bool


def repeats_for(
    noise: Sequence[PairNoise],
    family: int,
    *,
    resolution: float = RESOLUTION,
    most: int = REPEATS_MOST,
    confidence: float = CONFIDENCE,
) -> Needed | None:
    """Return the fewest blocks, from 5 to `most`, whose intervals are `resolution` wide to each side on average.

    `family` counts the intervals that hold together, those without a variance among them. None without any variance:
    nothing was measured often enough, or nothing varied. Then there is no reason to go on. Raises ValueError for a
    `resolution` that is not above 0, or for `most` below 5.
    """
    if not resolution > 0.0 or most < FEWEST_BLOCKS:
        raise ValueError(f"a resolution above 0 and a limit of 5 or more repeats are needed, not {resolution}, {most}")
    if not noise:
        return None
    goal = math.log1p(resolution)
    widths = {
        repeats: _mean_half_width(noise, family, repeats, confidence) for repeats in range(FEWEST_BLOCKS, most + 1)
    }
    repeats = next((repeats for repeats, width in widths.items() if width <= goal), most)
    return Needed(repeats, math.expm1(widths[repeats]), widths[repeats] <= goal)


def _mean_half_width(noise: Sequence[PairNoise], family: int, repeats: int, confidence: float) -> float:
    """Return the mean half width after so many blocks if the variances stay as they are; in units of log ratios."""
    return fmean(
        critical_t(_degrees(one, repeats), confidence, family) * math.sqrt(one.variance / repeats) for one in noise
    )


def _degrees(one: PairNoise, repeats: int) -> float:
    return min(one.prior_degrees + repeats - 1, one.pool * (repeats - 1.0))
