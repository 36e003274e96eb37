"""The reach of an axis: it holds every mark, and an interval that goes far beyond them ends in an arrow.

With two or three repeats an interval may be a thousand times as wide as the differences that a figure shows. An axis
that held it would show nothing else.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import altair as alt

from accelsweep.report.figures.parts.figure import DataRow, have

LINEAR_REACH = 1.0
"""A linear axis goes so far beyond the outermost marks, as a share of their distance."""

_AIR = 0.04


def linear_domain(
    rows: Sequence[DataRow], key: str, *, zero: bool, bounds: Sequence[float] = ()
) -> tuple[float, float]:
    """Return the ends of a linear axis that holds the value `key` of every row, `bounds`, and intervals within reach.

    With `zero` the axis begins at 0, unless a value is negative.
    """
    values = [*(row[key] for row in rows if row[key] is not None), *bounds]
    low, high = min([*values, *([0.0] if zero else [])]), max([*values, *([0.0] if zero else [])])
    width = (high - low) or abs(high) or 1.0
    lows = [row["low"] for row in rows if row["low"] is not None]
    highs = [row["high"] for row in rows if row["high"] is not None]
    foot = low if zero else max(min([low, *lows]), low - LINEAR_REACH * width)
    top = min(max([high, *highs]), high + LINEAR_REACH * width)
    air = _AIR * ((top - foot) or width)
    return float(f"{foot if zero else foot - air:.6g}"), float(f"{top + air:.6g}")


def round_ticks(low: float, high: float) -> list[float]:
    """Return three to eight round numbers that cover low to high: multiples of 1, 2 or 5 times a power of ten."""
    width = (high - low) or abs(high) or 1.0
    power = 10.0 ** math.floor(math.log10(width))
    step = next(factor * power for factor in (0.2, 0.5, 1.0, 2.0) if width / (factor * power) <= 6)
    return [round(number * step, 9) for number in range(math.floor(low / step), math.ceil(high / step) + 1)]


def clipped(row: DataRow, domain: tuple[float, float]) -> dict[str, Any]:
    """Return the row with the part of its interval that the axis holds, and where an arrow says that it goes on."""
    low, high = row["low"], row["high"]
    if low is None or high is None:
        return {**row, "from": None, "to": None, "under": None, "over": None}
    return {
        **row,
        "from": max(low, domain[0]),
        "to": min(high, domain[1]),
        "under": domain[0] if low < domain[0] else None,
        "over": domain[1] if high > domain[1] else None,
    }


def arrows(base: alt.Chart, rows: Sequence[DataRow], scale: alt.Scale, **encodings: Any) -> list[alt.Chart]:
    """Return an arrow at each end of a horizontal axis that some interval goes beyond."""
    return [
        _arrows(base, end, shape).encode(x=alt.X(f"{end}:Q", scale=scale), **encodings)
        for end, shape in (("under", "triangle-left"), ("over", "triangle-right"))
        if have(rows, end)
    ]


def upright_arrows(base: alt.Chart, rows: Sequence[DataRow], scale: alt.Scale) -> list[alt.Chart]:
    """Return an arrow at each end of a vertical axis that some interval goes beyond."""
    return [
        _arrows(base, end, shape).encode(y=alt.Y(f"{end}:Q", scale=scale))
        for end, shape in (("under", "triangle-down"), ("over", "triangle-up"))
        if have(rows, end)
    ]


def _arrows(base: alt.Chart, end: str, shape: str) -> alt.Chart:
    kept = base.transform_filter(f"isValid(datum.{end})")
    marks: alt.Chart = kept.mark_point(shape=shape, filled=True, size=50)
    return marks
