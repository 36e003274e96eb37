"""The values that agree with a claim, and whether a measured interval lies within them."""

from __future__ import annotations

import math
import re
from enum import StrEnum
from typing import NamedTuple

from accelsweep.core.claims.expressions import NUMBER

VALUE_TOLERANCE = 0.1
"""The relative distance from a claimed value within which a measured one still agrees with it."""

BOUND_MARGIN = 0.02
"""The share by which a value must exceed the bound of `more than`, or may miss that of `at least`."""

_BOUND = re.compile(rf"(at least|more than|at most|less than) {NUMBER}")
_RANGE = re.compile(rf"{NUMBER} to {NUMBER}")


class ClaimVerdict(StrEnum):
    """Whether a measured value's interval agrees with a claim. A claim that cannot be tested is never dropped."""

    agrees = "agrees"
    more = "more than claimed"
    less = "less than claimed"
    undecided = "undecided"
    disturbed = "disturbed"
    measured = "measured, no figure claimed"
    not_run = "not run"
    not_testable = "not testable here"


class Bounds(NamedTuple):
    """The values that agree with a claim; None is no bound."""

    lowest: float | None = None
    highest: float | None = None


def bounds(claimed: float | str, tolerance: float | None = None) -> Bounds:
    """Return the bounds for `13.76`, `5.3 to 6.7`, `at least 3`, `more than 1`, `at most 2`, `less than 1`.

    A value and a range allow for `tolerance` (default `VALUE_TOLERANCE`) on both sides. An inclusive bound (`at least`)
    allows for it too (default `BOUND_MARGIN`); an exclusive one (`more than`) must be exceeded by as much. Raises
    ValueError for other words.
    """
    if isinstance(claimed, str) and (match := _BOUND.fullmatch(claimed.strip())):
        words, bound, slack = match[1], float(match[2]), 1.0 + (tolerance or BOUND_MARGIN)
        outwards = {"at least": 1 / slack, "more than": slack, "at most": slack, "less than": 1 / slack}
        value = bound * outwards[words]
        return Bounds(lowest=value) if words in ("at least", "more than") else Bounds(highest=value)
    match = _RANGE.fullmatch(claimed.strip()) if isinstance(claimed, str) else None
    low, high = (float(match[1]), float(match[2])) if match else (float(claimed), float(claimed))
    if not 0 < low <= high or not math.isfinite(high):
        raise ValueError("must be more than 0, finite, and a range must begin with its lower end")
    slack = 1.0 + (tolerance or VALUE_TOLERANCE)
    return Bounds(low / slack, high * slack)


def decide(low: float | None, high: float | None, agreeing: Bounds) -> ClaimVerdict:
    """Return the interval's verdict: wholly within the agreeing values, wholly above, wholly below, or undecided."""
    if low is None or high is None:
        return ClaimVerdict.undecided
    if agreeing.highest is not None and low > agreeing.highest:
        return ClaimVerdict.more
    if agreeing.lowest is not None and high < agreeing.lowest:
        return ClaimVerdict.less
    above = agreeing.lowest is None or low >= agreeing.lowest
    below = agreeing.highest is None or high <= agreeing.highest
    return ClaimVerdict.agrees if above and below else ClaimVerdict.undecided
