"""The reach of an axis: it holds every mark, and an interval that goes far beyond them ends in an arrow.

With two or three repeats an interval may be a thousand times as wide as the differences that a figure shows. An axis
that held it would show nothing else.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import altair as alt

from accelsweep.config.setting import label
from accelsweep.records.findings import CellFinding, Findings
from accelsweep.records.run_record import Outcome
from accelsweep.report.figures.figure import DataRow, have

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


# The lines of a chart over batch sizes: which settings stand on one line, and how a setting on it ended.

MOST_SERIES = 8
"""More lines than there are colours to tell them apart make no picture."""


def series_of(cell: CellFinding, findings: Findings) -> str:
    """Return the common values of the cells on one line: every axis but the batch size, and their hardware."""
    axes = {key: value for key, value in cell.axes.items() if key != "batch_size"}
    name = label(axes or _everywhere(findings))
    return f"{name} | {cell.hardware}" if len(findings.hardware) > 1 and cell.hardware else name


def _everywhere(findings: Findings) -> dict[str, Any]:
    """Return the common values of all cells if only the batch size was swept, so that their one line has a name."""
    one = next((cell.effective for cell in findings.cells if cell.effective is not None), None)
    if one is None:
        return {}
    return {"accelerator": one.accelerator, "devices": one.world_size, "precision": one.precision}


def main_outcome(cell: CellFinding) -> Outcome:
    """Return `measured` if any run was measured, otherwise the most frequent outcome (the first of equals)."""
    if cell.measured:
        return Outcome.measured
    counted = sorted(cell.outcomes.items(), key=lambda item: (-item[1], item[0].value))
    return counted[0][0] if counted else Outcome.not_run


# The logarithmic axis of ratios: what it holds, and its ticks.

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
