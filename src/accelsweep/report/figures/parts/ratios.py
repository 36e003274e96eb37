"""The logarithmic axis of ratios: what it holds, and its ticks."""

from __future__ import annotations

import math
from collections.abc import Sequence

from accelsweep.report.figures.parts.figure import DataRow

RATIO_REACH = 2.0
"""The axis goes so far beyond the outermost mark, as a factor; an interval that goes further ends in an arrow."""

_TICKS = (0.01, 0.02, 0.05, 0.1, 0.2, 0.25, 0.33, 0.5, 0.67, 0.8, 0.9, 0.95, 1, 1.05, 1.1, 1.25, 1.5, 2, 3, 4, 6, 8, 12)
_FINE_TICKS = (0.96, 0.97, 0.98, 0.99, 1, 1.01, 1.02, 1.03, 1.04)


def ratio_domain(rows: Sequence[DataRow], *bounds: float) -> tuple[float, float]:
    """Return a domain for a logarithmic axis that holds every ratio and the given bounds, with a little air.

    It holds the intervals too, unless they reach further than `RATIO_REACH` times beyond the outermost ratio.
    """
    ratios = [row["ratio"] for row in rows if row["ratio"] is not None and row["ratio"] > 0]
    low, high = min([*ratios, *bounds]), max([*ratios, *bounds])
    lows = [row["low"] for row in rows if row["low"] is not None and row["low"] > 0]
    highs = [row["high"] for row in rows if row["high"] is not None]
    low, high = max(min([low, *lows]), low / RATIO_REACH), min(max([high, *highs]), high * RATIO_REACH)
    air = max((high / low) ** 0.06, 1.01)
    return float(f"{low / air:.6g}"), float(f"{high * air:.6g}")


def ratio_ticks(domain: tuple[float, float]) -> list[float]:
    """Return round values for a logarithmic axis of ratios; at least two unless the domain is tiny."""
    low, high = domain
    known = _FINE_TICKS if high / low < 1.12 else _TICKS
    inside = [tick for tick in known if low <= tick <= high]
    powers = [2.0**power for power in range(4, math.ceil(math.log2(high)) + 1) if high > 16 and 2.0**power <= high]
    wide = [tick for tick in inside if high / low < 2.5 or tick not in (0.95, 1.05, 0.9, 1.1)]
    return wide + powers
