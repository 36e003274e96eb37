"""The smallest difference that repeats can show: the power of the paired interval that the analysis uses.

One formula serves the plan (with an assumed noise) and the report (with the observed noise). `noise` is always the
standard deviation of the natural logarithm of one run's rate within a block: 0.01 is about 1 %. It is assumed to be
equal in all cells. So the moderated variances have the most degrees of freedom that they may have. The floor of the
interval is left out. At 3 repeats both make the answers optimistic; from 5 on that hardly shows.
"""

from __future__ import annotations

import math
from bisect import bisect_left

from accelsweep.core.planned.settings import CONFIDENCE, THRESHOLD
from accelsweep.repeats.student import critical_t, prior_degrees

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
