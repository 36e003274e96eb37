"""The smallest difference that repeats can show: the power of the paired interval that the analysis uses.

One formula serves the plan (with an assumed noise) and the report (with the observed noise). `noise` is always the
standard deviation of the natural logarithm of one run's rate within a block: 0.01 is about 1 %. It is assumed to be
equal in all cells. So the moderated variances have the most degrees of freedom that they may have. The floor of the
interval is left out. At 3 repeats both make the answers optimistic; from 5 on that hardly shows.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean

from accelsweep.analysis.intervals import critical_t, prior_degrees
from accelsweep.config.sweep_options import CONFIDENCE, REPEATS_MOST, RESOLUTION, THRESHOLD
from accelsweep.records.estimates import Verdict
from accelsweep.records.findings import CellFinding
from accelsweep.records.plan import Manifest

MOST_REPEATS = 100
"""The limit of `repeats_needed`: an answer that takes more repeats than this is no plan."""


def chance_to_see(
    ratio: float, repeats: int, noise: float, *, family: int = 1, confidence: float = CONFIDENCE, threshold: float = 0.0
) -> float:
    """Return the probability that the interval of a true rate `ratio` lies wholly beyond 1 + threshold or its inverse.

    A t-statistic whose mean is shifted follows the noncentral t distribution (Johnson, Kotz and Balakrishnan,
    "Continuous Univariate Distributions", vol. 2, ch. 31). The answer is 0 for fewer than 2 repeats, and 1 or 0 where
    there is no noise.
    """
    from scipy import special  # late, as in `critical_t`

    distance = abs(math.log(ratio)) - math.log1p(threshold)
    if repeats < 2:
        return 0.0
    if noise == 0.0:
        return float(distance > 0.0)
    degrees = degrees_of_freedom(repeats, family)
    shift = distance / _standard_error(repeats, noise)
    return 1.0 - float(special.nctdtr(degrees, shift, critical_t(degrees, confidence, family)))


def smallest_visible_effect(
    repeats: int,
    noise: float,
    *,
    family: int = 1,
    confidence: float = CONFIDENCE,
    threshold: float = THRESHOLD,
    power: float = 0.8,
) -> float | None:
    """Return the smallest x for which a cell truly 1 + x times as fast is found `faster` with chance `power`.

    The inverse of `chance_to_see` in closed form, through the noncentrality of the t distribution. None for fewer than
    2 repeats, which give no interval.
    """
    from scipy import special  # late, as in `critical_t`

    if repeats < 2:
        return None
    degrees = degrees_of_freedom(repeats, family)
    shift = float(special.nctdtrinc(degrees, 1.0 - power, critical_t(degrees, confidence, family)))
    return math.expm1(math.log1p(threshold) + shift * _standard_error(repeats, noise))


def repeats_needed(
    ratio: float,
    noise: float,
    *,
    family: int = 1,
    confidence: float = CONFIDENCE,
    threshold: float = THRESHOLD,
    power: float = 0.8,
) -> int | None:
    """Return the fewest repeats that find a true rate `ratio` faster, slower or the same with chance `power`.

    A ratio inside the threshold is settled by an interval that fits between its bounds. The interval must exclude the
    nearer bound. None if it takes more than `MOST_REPEATS`, as it does for a ratio close to the threshold.
    """
    distance = math.exp(abs(abs(math.log(ratio)) - math.log1p(threshold)))
    choices = range(3, MOST_REPEATS + 1)
    index = bisect_left(
        choices, power, key=lambda n: chance_to_see(distance, n, noise, family=family, confidence=confidence)
    )
    return choices[index] if index < len(choices) else None


def degrees_of_freedom(repeats: int, family: int = 1) -> float:
    """Return the degrees of freedom of each of `family` ratios to one baseline after `repeats` blocks.

    From 3 blocks on they are those of the moderated variance, whose prior is worth `prior_degrees`. They are never more
    than all pairs have together. Below 3 blocks they are those of two samples. A single ratio has no others to share a
    prior with.
    """
    if repeats < 3:
        return 2.0 * (repeats - 1)
    return min(prior_degrees(family + 1) + repeats - 1, max(family, 1) * (repeats - 1.0))


def _standard_error(repeats: int, noise: float) -> float:
    """Return the standard error of a mean log-ratio of two runs, each with `noise`, over `repeats` blocks."""
    return noise * math.sqrt(2.0 / repeats)


# The number of repeats behind the ratios of a sweep: one number for the doubt, the visible effect and the advice.


def planned_repeats(cells: Sequence[CellFinding], manifest: Manifest) -> int:
    """Return the planned blocks of the compared row that has the fewest; they are the units of its interval.

    The baseline stands in every block, also in those of cells that joined the plan later, so it counts only where
    nothing else is planned. Rows on different hardware count apart; a refused row only where all are refused. Where
    nothing is planned to run, this is the number that the plan would want of a cell.
    """
    counts = [(cell, len({run.block for run in cell.runs})) for cell in cells]
    planned = [(cell, count) for cell, count in counts if count]
    others = [(cell, count) for cell, count in planned if cell.cell != manifest.baseline]
    compared = [(cell, count) for cell, count in others if cell.verdict is not Verdict.refused]
    return min((count for _, count in compared or others or planned), default=manifest.settings.repeats)


# The number of blocks for `repeats: auto`: from the variances in a pilot of 3 blocks, never from an effect.

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
