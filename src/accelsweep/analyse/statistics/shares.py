"""Shares of runs with an interval that is exact at any number of runs."""

from __future__ import annotations

from scipy import special

from accelsweep.analysis.intervals import Family, significant
from accelsweep.records.estimates import Estimate


def share(times: int, of: int, family: Family, unit: str) -> Estimate:
    """Return `times / of` with the interval of Clopper and Pearson ("The Use of Confidence or Fiducial Limits", 1934).

    It covers at least at the family's confidence, also where something happened never or always. `of` is at least 1.
    """
    tail = (1.0 - family.each) / 2.0
    low = float(special.betaincinv(times, of - times + 1, tail)) if times else 0.0
    high = float(special.betaincinv(times + 1, of - times, 1.0 - tail)) if times < of else 1.0
    return Estimate(
        value=significant(times / of),
        low=significant(low),
        high=significant(high),
        unit=unit,
        confidence=significant(family.each),
        count=of,
    )
