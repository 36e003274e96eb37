"""The figure of one line: its points in order, their intervals, the levels, and rules where something changed."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import geometric_mean
from typing import Any

import altair as alt

from accelsweep.features.history.lines import HistoryLine, LinePoint, RateChange
from accelsweep.records.estimates import Verdict
from accelsweep.report import units as fmt
from accelsweep.report.captions import Caption
from accelsweep.report.figures.figure import ROWS, SI_AXIS, Chart, Figure, Palette, have
from accelsweep.significant_digits import significant

COLUMNS = (
    "place", "point", "source", "version", "commit", "local_changes", "committed", "measured", "rate", "low", "high",
    "blocks", "disturbed", "level", "change", "software",
)  # fmt: skip

HEIGHT = 240
"""Of a figure, in pixels."""

_LATE = 0.6
"""From this share of the points on, words beside a rule stand left of it: right of it they would leave the picture."""

_SLOTS = 3
"""So many words beside rules stand one below the other, because on a phone neighbours would cover each other."""

_SLOT_HEIGHT = 15

_LEAST = 0.03
"""The axis covers at least this share of the rate, so that noise does not look like much."""

_REACH = 2.0
"""The axis goes this many times as far as the points reach from their middle: a wide interval stretches it no more."""


@dataclass(frozen=True)
class LineFigure(Figure):
    """A figure whose title is that of its line."""

    title: str = ""

    @property
    def caption(self) -> Caption:
        """The line's title; how to read all of the figures stands above them once."""
        return Caption(self.title, "")


def line_figure(name: str, title: str, line: HistoryLine) -> LineFigure:
    """Return the figure of a line."""
    rows = _rows(line)
    domain = _domain(line.points)
    rows = [{**row, "from": _within(row["low"], domain), "to": _within(row["high"], domain)} for row in rows]
    changes = "; ".join(change_words(line, change) for change in line.changes) or "no change"
    return LineFigure(
        name=name,
        alt=f"Rate of {title} over {fmt.count(len(rows), 'point')}: {changes}.",
        rows=rows,
        columns=COLUMNS,
        draw=lambda palette: _draw(palette, rows, domain, fmt.unit_word(line.rate_unit)),
        title=title,
    )


def change_words(line: HistoryLine, change: RateChange) -> str:
    """Return `3.0 % slower at 1a2b3c4`, with the packages that changed there, too."""
    beside = f", where {' and '.join(change.software)} changed too" if change.software else ""
    return f"{amount_words(change)} at {line.points[change.at].name}{beside}"


def amount_words(change: RateChange) -> str:
    """Return how much the rate changed: `3.0 % slower`."""
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
                **_facts(point),
                "level": levels[segment],
                "segment": segment,
                "change": amount_words(changes[at]) if at in changes else None,
                "better": at in changes and changes[at].verdict is Verdict.faster,
                "worse": at in changes and changes[at].verdict is Verdict.slower,
                "software": ", ".join(software.get(at, ())) or None,
                "before": at + 0.5,
                "late": at > _LATE * len(line.points),
                "slot": segment % _SLOTS,
                "software_slot": sum(place < at for place in software) % _SLOTS,
            }
        )
    return rows


def _facts(point: LinePoint) -> dict[str, Any]:
    return {
        "source": point.source,
        "version": point.version,
        "commit": point.commit,
        "local_changes": point.local_changes,
        "committed": point.committed,
        "measured": point.measured,
        "rate": point.rate.value,
        "low": point.rate.low,
        "high": point.rate.high,
        "blocks": point.rate.count,
        "disturbed": point.disturbed,
        "words": fmt.estimate_text(point.rate),
        "day": point.day,
    }


def _levels(line: HistoryLine) -> list[float | None]:
    """Return the geometric mean of the points of each level; None where no change was looked for."""
    if line.reason:
        return [None] * (len(line.changes) + 1)
    ends = [0, *(change.at for change in line.changes), len(line.points)]
    parts = [line.points[a:b] for a, b in pairwise(ends)]
    return [_geometric([one.rate.value for one in part if one.disturbed is None]) for part in parts]


def _geometric(values: Sequence[float]) -> float | None:
    return float(f"{geometric_mean(values):.6g}") if values else None


def _domain(points: Sequence[LinePoint]) -> tuple[float, float]:
    """Return the ends of the axis: all points with their intervals, unless one of these is very wide."""
    rates = [point.rate.value for point in points]
    low, high = min(rates), max(rates)
    room = _REACH * max(high - low, 0.01 * high)
    ends = [end for point in points for end in (point.rate.low, point.rate.high) if end is not None]
    low, high = max(min([low, *ends]), low - room), min(max([high, *ends]), high + room)
    short = max(0.0, _LEAST * high - (high - low))
    low, high = low - short / 2.0, high + short / 2.0
    air = 0.08 * (high - low)
    return float(f"{low - 2.0 * air:.6g}"), float(f"{high + 3.0 * air:.6g}")  # words stand above and below the points


def _within(end: float | None, domain: tuple[float, float]) -> float | None:
    return None if end is None else min(max(end, domain[0]), domain[1])


def _draw(palette: Palette, rows: Sequence[dict[str, Any]], domain: tuple[float, float], unit: str) -> Chart:
    names = json.dumps([row["point"] for row in rows])  # hexadecimal digits and dates: no string of a user's
    axis = alt.Axis(values=list(range(1, len(rows) + 1)), labelExpr=f"{names}[datum.value - 1]", grid=False)
    x = alt.X("place:Q", title=None, axis=axis, scale=alt.Scale(domain=[0.5, len(rows) + 0.5], nice=False))
    scale = alt.Scale(domain=list(domain), nice=False, zero=False)
    y = alt.Y("rate:Q", title=f"rate ({unit})", scale=scale, axis=SI_AXIS)
    base = alt.Chart(ROWS).encode(tooltip=[alt.Tooltip(f"{key}:N", title=title) for key, title in _TOOLTIP.items()])
    counted, apart = "!isValid(datum.disturbed)", "isValid(datum.disturbed)"
    layers = [*_software(base, palette, rows), *_changes(base, palette, rows)]
    if have(rows, "level"):
        line = base.mark_line(color=palette.muted, strokeWidth=2, strokeDash=[5, 4])
        layers.append(line.encode(x=x, y=alt.Y("level:Q", scale=scale), detail=alt.Detail("segment:N")))
    if have(rows, "from"):
        layers.append(
            base.mark_rule(strokeWidth=2, color=palette.accent, opacity=0.55).encode(
                x=x, y=alt.Y("from:Q"), y2=alt.Y2("to:Q")
            )
        )
    point = base.transform_filter(counted).mark_point(filled=True, size=75, color=palette.accent)
    layers.append(point.encode(x=x, y=y))
    if have(rows, "disturbed"):
        cross = base.transform_filter(apart).mark_point(shape="cross", filled=True, size=90, color=palette.muted)
        layers.append(cross.encode(x=x, y=y))
    return alt.layer(*layers).properties(height=HEIGHT)


def _changes(base: alt.Chart, palette: Palette, rows: Sequence[dict[str, Any]]) -> list[alt.Chart]:
    """Return a rule at each change with the amount above it."""
    found = []
    for side, colour in (("better", palette.faster), ("worse", palette.slower)):
        if have(rows, side):
            here = base.transform_filter(f"datum.{side}").encode(x=alt.X("before:Q"))
            found.append(here.mark_rule(color=colour, strokeWidth=2))
            found += _words(here, rows, "change", color=colour, baseline="top", fontWeight="bold")
    return found


def _software(base: alt.Chart, palette: Palette, rows: Sequence[dict[str, Any]]) -> list[alt.Chart]:
    """Return a thin rule where a package changed, with its versions below."""
    if not have(rows, "software"):
        return []
    here = base.transform_filter("isValid(datum.software)").encode(x=alt.X("before:Q"))
    rule = here.mark_rule(color=palette.muted, strokeDash=[2, 3])
    return [rule, *_words(here, rows, "software", color=palette.muted, baseline="bottom")]


def _words(here: alt.Chart, rows: Sequence[dict[str, Any]], key: str, **look: Any) -> list[alt.Chart]:
    """Return the words beside rules: right of an early one, left of a late one; those above from the top down."""
    place = "slot" if key == "change" else "software_slot"
    found = []
    for slot, late in sorted({(row[place], row["late"]) for row in rows if row[key] is not None}):
        height = 2 + _SLOT_HEIGHT * slot
        one = here.transform_filter(
            f"isValid(datum.{key}) && datum.{place} == {slot} && datum.late == {str(late).lower()}"
        )
        mark = one.mark_text(align="right" if late else "left", dx=-5 if late else 5, **look)
        found.append(
            mark.encode(y=alt.value(height if key == "change" else HEIGHT - height), text=alt.Text(f"{key}:N"))
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
