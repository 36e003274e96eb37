"""Shares of runs with an interval that is exact at any number of runs."""

from __future__ import annotations

from scipy.stats import beta

from accelsweep.analyse.statistics.intervals import Family, significant
from accelsweep.core.findings.numbers import Estimate


def share(times: int, of: int, family: Family, unit: str) -> Estimate:
    """Return `times / of` with the interval of Clopper and Pearson ("The Use of Confidence or Fiducial Limits", 1934).

    It covers at least at the family's confidence, also where something happened never or always. `of` is at least 1.
    """
    tail = (1.0 - family.each) / 2.0
    low = float(beta.ppf(tail, times, of - times + 1)) if times else 0.0
    high = float(beta.ppf(1.0 - tail, times + 1, of - times)) if times < of else 1.0
    return Estimate(
        value=significant(times / of),
        low=significant(low),
        high=significant(high),
        unit=unit,
        confidence=significant(family.each),
        count=of,
    )
