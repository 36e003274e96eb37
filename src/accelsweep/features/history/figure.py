"""The figure for a series: points with intervals, levels, and vertical rules at changes."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import geometric_mean
from typing import Any

import altair as alt

from accelsweep.features.history.model import HistoryLine, LinePoint, RateChange
from accelsweep.records.estimates import Verdict
from accelsweep.report import formatting as fmt
from accelsweep.report.captions import Caption
from accelsweep.report.figures.figure import SI_AXIS, Chart, Figure, Layer, Palette, has_values
from accelsweep.significant_digits import significant

COLUMNS = (
    "place", "point", "source", "version", "commit", "local_changes", "committed", "measured", "rate", "low", "high",
    "blocks", "disturbed", "level", "change", "software",
)  # fmt: skip

HEIGHT = 240

_LEFT_LABELS_FROM = 0.6
"""Beyond this fraction of the series, labels are placed left of their rule, as they would not fit on its right."""

_LABEL_ROWS = 3
"""The number of rows over which labels are staggered, because adjacent labels would overlap on a phone."""

_LABEL_HEIGHT = 15

_MIN_AXIS_SHARE = 0.03
"""The axis spans at least this share of the rate, so that noise does not look large."""

_MAX_AXIS_REACH = 2.0
"""A wide interval extends the axis by at most this multiple of the points' range."""


@dataclass(frozen=True)
class LineFigure(Figure):
    """A figure titled after its series."""

    title: str = ""

    @property
    def caption(self) -> Caption:
        """The series' title. How to read the figures is explained once, on the page."""
        return Caption(self.title, "")


def line_figure(name: str, title: str, line: HistoryLine) -> LineFigure:
    """Return the figure for a series."""
    rows = _rows(line)
    domain = _domain(line.points)
    rows = [{**row, "from": _within(row["low"], domain), "to": _within(row["high"], domain)} for row in rows]
    changes = "; ".join(describe_change(line, change) for change in line.changes) or "no change"
    return LineFigure(
        name=name,
        alt=f"Rate of {title} over {fmt.count(len(rows), 'point')}: {changes}.",
        rows=rows,
        columns=COLUMNS,
        draw=lambda palette: _draw(palette, rows, domain, fmt.unit_word(line.rate_unit)),
        title=title,
    )


def describe_change(line: HistoryLine, change: RateChange) -> str:
    """Describe a change, such as `3.0 % slower at 1a2b3c4`, with the packages that changed at that point."""
    software = f", where {' and '.join(change.software)} changed too" if change.software else ""
    return f"{describe_amount(change)} at {line.points[change.at].name}{software}"


def describe_amount(change: RateChange) -> str:
    """Return the amount of a change: `3.0 % slower`, or `2.1x as fast` from a third up or down on."""
    if not 0.67 < change.ratio.value < 1.5:
        return f"{significant(change.ratio.value, 2)}x as fast"
    return f"{significant(abs(change.ratio.value - 1.0) * 100.0, 2)} % {change.verdict}"


def _rows(line: HistoryLine) -> list[dict[str, Any]]:
    software, changes = line.software_changes, {change.at: change for change in line.changes}
    levels, segment = _levels(line), 0
    rows = []
    for at, point in enumerate(line.points):
        segment += at in changes
        rows.append(
            {
                "place": at + 1,
                "point": point.name,
                **point.model_dump(exclude={"name", "rate", "software"}),
                "rate": point.rate.value,
                "low": point.rate.low,
                "high": point.rate.high,
                "blocks": point.rate.count,
                "words": fmt.estimate_text(point.rate),
                "day": point.day,
                "level": levels[segment],
                "segment": segment,
                "change": describe_amount(changes[at]) if at in changes else None,
                "better": at in changes and changes[at].verdict is Verdict.faster,
                "worse": at in changes and changes[at].verdict is Verdict.slower,
                "software": ", ".join(software.get(at, ())) or None,
                "before": at + 0.5,
                "late": at > _LEFT_LABELS_FROM * len(line.points),
                "slot": segment % _LABEL_ROWS,
                "software_slot": sum(place < at for place in software) % _LABEL_ROWS,
            }
        )
    return rows


def _levels(line: HistoryLine) -> list[float | None]:
    """Return the geometric mean of each level; None if changes were not searched for."""
    if line.reason:
        return [None] * (len(line.changes) + 1)
    ends = [0, *(change.at for change in line.changes), len(line.points)]
    parts = [[point.rate.value for point in line.points[a:b] if point.disturbed is None] for a, b in pairwise(ends)]
    return [float(f"{geometric_mean(part):.6g}") if part else None for part in parts]


def _domain(points: Sequence[LinePoint]) -> tuple[float, float]:
    """Return the ends of an axis that spans all points and their intervals; very wide intervals are clipped."""
    rates = [point.rate.value for point in points]
    low, high = min(rates), max(rates)
    room = _MAX_AXIS_REACH * max(high - low, 0.01 * high)
    ends = [end for point in points for end in (point.rate.low, point.rate.high) if end is not None]
    low, high = max(min([low, *ends]), low - room), min(max([high, *ends]), high + room)
    short = max(0.0, _MIN_AXIS_SHARE * high - (high - low))
    low, high = low - short / 2.0, high + short / 2.0
    air = 0.08 * (high - low)
    return float(f"{low - 2.0 * air:.6g}"), float(f"{high + 3.0 * air:.6g}")  # room for labels above and below


def _within(end: float | None, domain: tuple[float, float]) -> float | None:
    return None if end is None else min(max(end, domain[0]), domain[1])


def _draw(palette: Palette, rows: Sequence[dict[str, Any]], domain: tuple[float, float], unit: str) -> Chart:
    names = json.dumps([row["point"] for row in rows])  # hexadecimal digits and dates, no user input
    axis = alt.Axis(values=list(range(1, len(rows) + 1)), labelExpr=f"{names}[datum.value - 1]", grid=False)
    x = alt.X("place:Q", title=None, axis=axis, scale=alt.Scale(domain=[0.5, len(rows) + 0.5], nice=False))
    scale = alt.Scale(domain=list(domain), nice=False, zero=False)
    y = alt.Y("rate:Q", title=f"rate ({unit})", scale=scale, axis=SI_AXIS)
    base = Layer().encode(tooltip=[alt.Tooltip(f"{key}:N", title=title) for key, title in _TOOLTIP.items()])
    layers = [*_software(base, palette, rows), *_changes(base, palette, rows)]
    if has_values(rows, "level"):
        line = base.mark_line(color=palette.muted, strokeWidth=2, strokeDash=[5, 4])
        layers.append(line.encode(x=x, y=alt.Y("level:Q", scale=scale), detail=alt.Detail("segment:N")))
    if has_values(rows, "from"):
        layers.append(
            base.mark_rule(strokeWidth=2, color=palette.series[0], opacity=0.55).encode(
                x=x, y=alt.Y("from:Q"), y2=alt.Y2("to:Q")
            )
        )
    point = base.transform_filter("!isValid(datum.disturbed)").mark_point(filled=True, size=75, color=palette.series[0])
    layers.append(point.encode(x=x, y=y))
    if has_values(rows, "disturbed"):
        cross = base.transform_filter("isValid(datum.disturbed)").mark_point(
            shape="cross", filled=True, size=90, color=palette.muted
        )
        layers.append(cross.encode(x=x, y=y))
    return alt.layer(*layers).properties(height=HEIGHT)


def _changes(base: alt.Chart, palette: Palette, rows: Sequence[dict[str, Any]]) -> list[alt.Chart]:
    """Return a rule at each change, with the amount shown above it."""
    layers = []
    for side, colour in (("better", palette.faster), ("worse", palette.slower)):
        if has_values(rows, side):
            here = base.transform_filter(f"datum.{side}").encode(x=alt.X("before:Q"))
            layers.append(here.mark_rule(color=colour, strokeWidth=2))
            layers += _labels(here, rows, "change", color=colour, baseline="top", fontWeight="bold")
    return layers


def _software(base: alt.Chart, palette: Palette, rows: Sequence[dict[str, Any]]) -> list[alt.Chart]:
    """Return a thin rule at each package change, with the versions shown below it."""
    if not has_values(rows, "software"):
        return []
    here = base.transform_filter("isValid(datum.software)").encode(x=alt.X("before:Q"))
    rule = here.mark_rule(color=palette.muted, strokeDash=[2, 3])
    return [rule, *_labels(here, rows, "software", color=palette.muted, baseline="bottom")]


def _labels(here: alt.Chart, rows: Sequence[dict[str, Any]], key: str, **style: Any) -> list[alt.Chart]:
    """Return the labels of rules: right of early rules and left of late ones, staggered from the edge inwards."""
    place = "slot" if key == "change" else "software_slot"
    found = []
    for slot, late in sorted({(row[place], row["late"]) for row in rows if row[key] is not None}):
        height = 2 + _LABEL_HEIGHT * slot
        one = here.transform_filter(
            f"isValid(datum.{key}) && datum.{place} == {slot} && datum.late == {str(late).lower()}"
        )
        mark = one.mark_text(align="right" if late else "left", dx=-5 if late else 5, **style)
        found.append(
            mark.encode(y=alt.YValue(height if key == "change" else HEIGHT - height), text=alt.Text(f"{key}:N"))
        )
    return found


_TOOLTIP = {
    "point": "point",
    "words": "rate",
    "day": "day",
    "source": "from",
    "version": "version",
    "disturbed": "disturbed",
    "software": "changed before it",
}
