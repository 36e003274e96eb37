"""Statistical power: the smallest difference that repeats can detect, and the repeats needed to detect a difference.

The plan and the report use the same formulas, with assumed and observed noise, respectively. `noise` is the standard
deviation of the natural logarithm of one run's rate within a block (0.01 is about 1 %). It is assumed to be equal in
all settings, so that the moderated variances have the maximum degrees of freedom. The floor on the interval is ignored.
At 3 repeats, both simplifications make the results optimistic; from 5 repeats on, the effect is negligible.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean

import scipy

from accelsweep.analysis.intervals import critical_t, prior_degrees
from accelsweep.config.sweep_options import CONFIDENCE, REPEATS_LEAST, REPEATS_MOST, RESOLUTION, THRESHOLD
from accelsweep.records.estimates import Verdict
from accelsweep.records.findings import SettingFinding
from accelsweep.records.plan import Manifest

MAX_REPEATS = 100
"""`repeats_needed` returns None if more repeats than this are needed."""


def detection_power(
    ratio: float, repeats: int, noise: float, *, family: int = 1, confidence: float = CONFIDENCE, threshold: float = 0.0
) -> float:
    """Return the probability that the interval for a true rate `ratio` is entirely beyond 1 + threshold or its inverse.

    A t-statistic with a shifted mean follows the noncentral t distribution (Johnson, Kotz and Balakrishnan, "Continuous
    Univariate Distributions", vol. 2, ch. 31). Returns 0 for fewer than 2 repeats, and 1 or 0 if the noise is 0.
    """
    distance = abs(math.log(ratio)) - math.log1p(threshold)
    if repeats < 2:
        return 0.0
    if noise == 0.0:
        return float(distance > 0.0)
    degrees, standard_error = degrees_of_freedom(repeats, family), noise * math.sqrt(2.0 / repeats)
    critical = critical_t(degrees, confidence, family)
    return 1.0 - float(scipy.special.nctdtr(degrees, distance / standard_error, critical))


def smallest_visible_effect(
    repeats: int,
    noise: float,
    *,
    family: int = 1,
    confidence: float = CONFIDENCE,
    threshold: float = THRESHOLD,
    power: float = 0.8,
) -> float | None:
    """Return the smallest x such that a setting that is truly 1 + x times as fast is found `faster` with this `power`.

    This is the closed-form inverse of `detection_power`, via the noncentrality of the t distribution. None for fewer
    than 2 repeats, which yield no interval.
    """
    if repeats < 2:
        return None
    degrees = degrees_of_freedom(repeats, family)
    shift = float(scipy.special.nctdtrinc(degrees, 1.0 - power, critical_t(degrees, confidence, family)))
    return math.expm1(math.log1p(threshold) + shift * noise * math.sqrt(2.0 / repeats))


def repeats_needed(
    ratio: float,
    noise: float,
    *,
    family: int = 1,
    confidence: float = CONFIDENCE,
    threshold: float = THRESHOLD,
    power: float = 0.8,
) -> int | None:
    """Return the fewest repeats needed to find a true rate `ratio` faster, slower or the same with this `power`.

    The interval must exclude the nearer bound of the threshold. None if more than `MAX_REPEATS` are needed, as is the
    case for a ratio close to a bound.
    """
    distance = math.exp(abs(abs(math.log(ratio)) - math.log1p(threshold)))
    choices = range(3, MAX_REPEATS + 1)
    index = bisect_left(
        choices, power, key=lambda n: detection_power(distance, n, noise, family=family, confidence=confidence)
    )
    return choices[index] if index < len(choices) else None


def degrees_of_freedom(repeats: int, family: int = 1) -> float:
    """Return the degrees of freedom of each of `family` ratios to one baseline after `repeats` blocks.

    From 3 blocks on, they are those of the moderated variance. Its prior contributes `prior_degrees`, but the total
    never exceeds that of all pairs together, because a single ratio has no other ratios to share a prior with. Below 3
    blocks, they are those of two samples.
    """
    if repeats < 3:
        return 2.0 * (repeats - 1)
    return min(prior_degrees(family + 1) + repeats - 1, max(family, 1) * (repeats - 1.0))


def planned_repeats(settings: Sequence[SettingFinding], manifest: Manifest) -> int:
    """Return the smallest number of planned blocks of any compared setting; blocks are the units of its interval.

    The baseline is in every block, including those of settings added later, so it counts only if nothing else is
    planned. Findings on different hardware count separately, and findings with the verdict `refused` count only if all
    findings have it. If nothing is planned to run, this is the number of repeats that the plan requests.
    """
    counts = [(setting, len({run.block for run in setting.runs})) for setting in settings]
    planned = [(setting, count) for setting, count in counts if count]
    others = [(setting, count) for setting, count in planned if setting.setting != manifest.baseline]
    compared = [(setting, count) for setting, count in others if setting.verdict is not Verdict.refused]
    return min((count for _, count in compared or others or planned), default=manifest.options.repeats)


# `repeats: auto`: the number of blocks depends on the variances in a pilot of 3 blocks, never on an effect.


@dataclass(frozen=True)
class PairNoise:
    """One comparison's noise in the pilot.

    `variance` is the variance of a paired log difference. In a pool of `pool` comparisons it is moderated, with a prior
    that has `prior_degrees` degrees of freedom.
    """

    variance: float
    prior_degrees: float = 0.0
    pool: int = 1


@dataclass(frozen=True)
class RepeatsNeeded:
    """The total number of blocks, including the pilot, and the resulting expected mean half-width.

    `half_width` is relative to the ratio (0.1 is 10 %). `reached` is False if even the maximum number of blocks does
    not reach the resolution.
    """

    repeats: int
    half_width: float
    reached: bool


def repeats_for_resolution(
    noise: Sequence[PairNoise],
    family: int,
    *,
    resolution: float = RESOLUTION,
    most: int = REPEATS_MOST,
    confidence: float = CONFIDENCE,
) -> RepeatsNeeded | None:
    """Return the fewest blocks, from 5 to `most`, that reduce the mean half-width of the intervals to `resolution`.

    `family` is the number of intervals that hold simultaneously, including those without a variance. None if there is
    no variance: nothing was measured often enough, or nothing varied, so there is no reason to continue. Raises
    ValueError if `resolution` is not above 0 or `most` is below 5.
    """
    if not resolution > 0.0 or most < REPEATS_LEAST:
        raise ValueError(
            f"the resolution must be above 0 and the limit at least 5 repeats, not {resolution} and {most}"
        )
    if not noise:
        return None

    def mean_half_width(repeats: int) -> float:  # in units of log ratios, assuming unchanged variances
        return fmean(
            critical_t(min(one.prior_degrees + repeats - 1, one.pool * (repeats - 1.0)), confidence, family)
            * math.sqrt(one.variance / repeats)
            for one in noise
        )

    goal = math.log1p(resolution)
    widths = {repeats: mean_half_width(repeats) for repeats in range(REPEATS_LEAST, most + 1)}
    repeats = next((repeats for repeats, width in widths.items() if width <= goal), most)
    return RepeatsNeeded(repeats, math.expm1(widths[repeats]), widths[repeats] <= goal)
