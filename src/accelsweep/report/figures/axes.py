"""Helpers shared by charts: axis ranges, arrows for intervals beyond them, series names and tooltips.

With two or three repeats, an interval may be a thousand times as wide as the differences that a figure shows, and an
axis covering it would show nothing else. An axis therefore spans all marks, and intervals that extend far beyond them
end in arrows.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from itertools import cycle
from typing import Any

import altair as alt

from accelsweep.config.setting import label
from accelsweep.records.estimates import Estimate, Verdict
from accelsweep.records.findings import Findings, SettingFinding
from accelsweep.report.figures.figure import SERIES_SHAPES, VERDICT_MARKS, DataRow, Palette, has_values
from accelsweep.results import Outcome

LINEAR_REACH = 1.0
"""How far a linear axis may extend beyond the outermost marks, as a fraction of the distance between them."""

RATIO_REACH = 2.0
"""How far a logarithmic axis may extend beyond the outermost marks, as a factor."""

_PADDING = 0.04

_TICKS = (0.01, 0.02, 0.05, 0.1, 0.2, 0.25, 0.33, 0.5, 0.67, 0.8, 0.9, 0.95, 1, 1.05, 1.1, 1.25, 1.5, 2, 3, 4, 6, 8, 12)

_FINE_TICKS = (0.96, 0.97, 0.98, 0.99, 1, 1.01, 1.02, 1.03, 1.04)


def linear_domain(
    rows: Sequence[DataRow], key: str, *, zero: bool, bounds: Sequence[float] = ()
) -> tuple[float, float]:
    """Return the ends of a linear axis that spans `bounds`, each row's `key` value, and its interval where possible.

    Intervals extend the axis by at most `LINEAR_REACH`. If `zero` is set, it starts at 0 unless a value is negative.
    """
    values = [*(row[key] for row in rows if row[key] is not None), *bounds, *([0.0] if zero else [])]
    low, high = min(values), max(values)
    width = (high - low) or abs(high) or 1.0
    lows = [row["low"] for row in rows if row["low"] is not None]
    highs = [row["high"] for row in rows if row["high"] is not None]
    bottom = low if zero else max(min([low, *lows]), low - LINEAR_REACH * width)
    top = min(max([high, *highs]), high + LINEAR_REACH * width)
    padding = _PADDING * ((top - bottom) or width)
    return float(f"{bottom if zero else bottom - padding:.6g}"), float(f"{top + padding:.6g}")


def round_ticks(low: float, high: float) -> list[float]:
    """Return three to eight round numbers that span `low` to `high`: multiples of 1, 2 or 5 times a power of ten."""
    width = (high - low) or abs(high) or 1.0
    power = 10.0 ** math.floor(math.log10(width))
    step = next(factor * power for factor in (0.2, 0.5, 1.0, 2.0) if width / (factor * power) <= 6)
    return [round(number * step, 9) for number in range(math.floor(low / step), math.ceil(high / step) + 1)]


def ratio_domain(rows: Sequence[DataRow], *bounds: float) -> tuple[float, float]:
    """Return the ends of a log axis that spans all ratios, `bounds`, and intervals up to `RATIO_REACH` beyond them."""
    ratios = [row["ratio"] for row in rows if row["ratio"] is not None and row["ratio"] > 0]
    low, high = min([*ratios, *bounds]), max([*ratios, *bounds])
    lows = [row["low"] for row in rows if row["low"] is not None and row["low"] > 0]
    highs = [row["high"] for row in rows if row["high"] is not None]
    low, high = max(min([low, *lows]), low / RATIO_REACH), min(max([high, *highs]), high * RATIO_REACH)
    padding = max((high / low) ** 0.06, 1.01)
    return float(f"{low / padding:.6g}"), float(f"{high * padding:.6g}")


def ratio_ticks(domain: tuple[float, float]) -> list[float]:
    """Return round values for a logarithmic axis of ratios, at least two unless the domain is tiny."""
    low, high = domain
    inside = [tick for tick in (_FINE_TICKS if high / low < 1.12 else _TICKS) if low <= tick <= high]
    powers = [2.0**power for power in range(4, math.ceil(math.log2(high)) + 1) if high > 16 and 2.0**power <= high]
    return [tick for tick in inside if high / low < 2.5 or tick not in (0.95, 1.05, 0.9, 1.1)] + powers


def clipped(row: DataRow, domain: tuple[float, float]) -> dict[str, Any]:
    """Return the row with the visible part of its interval (`from`, `to`) and the arrows at its ends.

    `under` and `over` are the ends of the axis if the interval extends beyond them, otherwise None.
    """
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


def arrows(
    base: alt.Chart, rows: Sequence[DataRow], scale: alt.Scale, *, vertical: bool = False, **encodings: Any
) -> list[alt.Chart]:
    """Return arrows for each end of an axis beyond which any interval extends."""
    shapes = {"under": "triangle-down", "over": "triangle-up"} if vertical else _HORIZONTAL_ARROWS
    layers = []
    for end, shape in shapes.items():
        if has_values(rows, end):
            axis = {"y": alt.Y(f"{end}:Q", scale=scale)} if vertical else {"x": alt.X(f"{end}:Q", scale=scale)}
            marks = base.transform_filter(f"isValid(datum.{end})").mark_point(shape=shape, filled=True, size=50)
            layers.append(marks.encode(**axis, **encodings))
    return layers


_HORIZONTAL_ARROWS = {"under": "triangle-left", "over": "triangle-right"}


def interval_fields(estimate: Estimate | None) -> dict[str, Any]:
    """Return the columns that describe an estimate's interval; all are None if there is no estimate."""
    return {name: getattr(estimate, name, None) for name in ("low", "high", "confidence", "count")}


def tooltip(titles: Mapping[str, str]) -> list[alt.Tooltip]:
    """Return a tooltip of text fields, each with its title."""
    return [alt.Tooltip(f"{field}:N", title=title) for field, title in titles.items()]


def row_axis(keys: Sequence[str], **options: Any) -> alt.Y:
    """Return the vertical axis of a chart that lists settings, keyed by `POSITION LABEL` because labels may repeat."""
    axis = alt.Axis(labelExpr="slice(datum.label, indexof(datum.label, ' ') + 1)", **options)
    return alt.Y("key:N", sort=list(keys), title=None, axis=axis)


BATCH_AXIS = alt.X("batch_size:O", title="batch size per device", axis=alt.Axis(labelAngle=0))


def series_encodings(field: str, names: Sequence[str], palette: Palette, *, columns: int = 2) -> dict[str, Any]:
    """Return the colour and the shape of the named series, with one legend for both.

    The shape applies to points only. Few series have each a colour that no verdict has.
    """
    colours = alt.Scale(domain=list(names), range=list(palette.series[: len(names)]))
    shapes = alt.Scale(domain=list(names), range=[shape for shape, _ in zip(cycle(SERIES_SHAPES), names, strict=False)])
    legend = alt.Legend(columns=columns) if len(names) > 1 else None
    return {
        "color": alt.Color(f"{field}:N", scale=colours, legend=legend),
        "shape": alt.Shape(f"{field}:N", scale=shapes, legend=legend),
    }


def verdict_encodings(verdicts: Iterable[str], palette: Palette) -> dict[str, Any]:
    """Return the colour and the shape of each of these verdicts, the same in every figure, with one legend for both."""
    present = set(verdicts)
    shown = [verdict for verdict in Verdict if verdict.value in present]
    shapes, colours = zip(*(VERDICT_MARKS[verdict] for verdict in shown), strict=True)
    names = [verdict.value for verdict in shown]
    colour_scale = alt.Scale(domain=names, range=[getattr(palette, colour) for colour in colours])
    return {
        "color": alt.Color("verdict:N", scale=colour_scale),
        "shape": alt.Shape("verdict:N", scale=alt.Scale(domain=names, range=list(shapes))),
    }


def lines_note(drawn: int, measured: int, which: str) -> str:
    """Return how many of the measured lines are drawn, such as `The fastest 8 of 20 measured lines`; empty for all."""
    if drawn == measured:
        return ""
    return f"The {which} {drawn} of {measured} measured lines are drawn; the CSV contains all."


def series_of(setting: SettingFinding, findings: Findings) -> str:
    """Return the name of a setting's series over batch sizes: all other axes, and the hardware if it varies.

    If only the batch size was swept, the single series is named after accelerator, devices and precision.
    """
    axes = {key: value for key, value in setting.axes.items() if key != "batch_size"}
    effective = next((other.effective for other in findings.settings if other.effective is not None), None)
    if not axes and effective is not None:
        axes = {
            "accelerator": effective.accelerator,
            "devices": effective.world_size,
            "precision": effective.precision,
        }
    return f"{label(axes)}, {setting.hardware}" if len(findings.hardware) > 1 and setting.hardware else label(axes)


def main_outcome(setting: SettingFinding) -> Outcome:
    """Return `measured` if any run was measured, otherwise the most frequent outcome (ties by name)."""
    if setting.measured:
        return Outcome.measured
    return min(
        setting.outcomes, key=lambda outcome: (-setting.outcomes[outcome], outcome.value), default=Outcome.not_run
    )
