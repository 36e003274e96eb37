"""Scaling: how the speed-up and the efficiency move with the number of devices."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import altair as alt

from accelsweep.records.estimates import Estimate
from accelsweep.records.findings import Findings, ScalingPoint
from accelsweep.report import units as fmt
from accelsweep.report.figures.axes import MOST_SERIES, clipped, linear_domain, upright_arrows
from accelsweep.report.figures.figure import ROWS, Chart, DataRow, Figure, Palette, Skipped, have

_NOTHING = "no setting was measured on two numbers of devices"
_CUT = "no device was added: more ranks on one processor cut the same machine into more parts"


def scaling_figure(findings: Findings) -> Figure | Skipped:
    """Return the speed-up against the number of devices, with ideal scaling beside it, or why there is none."""
    rows = _marked(_rows(findings, "speedup"), "speedup")
    if not rows:
        return Skipped("scaling", _NOTHING)
    domain = _domain(rows, "speedup")
    rows = [clipped(row, domain) for row in rows]
    return Figure(
        name="scaling",
        alt=f"Speed-up against devices: {_best(rows)}.",
        rows=rows,
        columns=_columns("speedup"),
        draw=lambda palette: _draw(palette, rows, domain, "speedup", "speed-up over the fewest devices", "~r"),
        note=_note(rows),
    )


def efficiency_figure(findings: Findings) -> Figure | Skipped:
    """Return the scaling efficiency against the number of devices, or why there is none."""
    rows = _marked(_rows(findings, "efficiency"), "efficiency")
    if not rows:
        return Skipped("efficiency", _NOTHING if not findings.scaling else _CUT)
    domain = _domain(rows, "efficiency")
    rows = [clipped(row, domain) for row in rows]
    return Figure(
        name="efficiency",
        alt=f"Scaling efficiency against devices: {_best(rows)}.",
        rows=rows,
        columns=_columns("efficiency"),
        draw=lambda palette: _draw(palette, rows, domain, "efficiency", "efficiency", "~%"),
        note=_note(rows),
    )


def _columns(value: str) -> tuple[str, ...]:
    return ("series", "kind", "cell", "devices", value, "low", "high", "confidence", "count", "law")


def _rows(findings: Findings, value: str) -> list[dict[str, Any]]:
    rows = []
    kinds = {_kind(point) for point in findings.scaling}
    laws = {(one.kind, one.series): dict(zip(one.devices, one.speedups, strict=True)) for one in findings.laws}
    for point in findings.scaling:
        shown: Estimate | None = getattr(point, value)
        if shown is None:
            continue
        law = laws.get((point.kind, point.series), {})
        ideal = 1.0 if value == "speedup" else point.devices / min(law, default=1)
        rows.append(
            {
                "series": point.series,
                "kind": point.kind,
                "line": f"{point.series} ({_kind(point)})" if len(kinds) > 1 else point.series,
                "kinds": _kind(point),
                "added": point.efficiency is not None,
                "cell": point.cell,
                "devices": point.devices,
                value: shown.value,
                "low": shown.low,
                "high": shown.high,
                "confidence": shown.confidence,
                "count": shown.count,
                "law": law[point.devices] / ideal if point.devices in law else None,
                "words": fmt.estimate_text(shown),
            }
        )
    return rows


def _kind(point: ScalingPoint) -> str:
    return f"{point.kind} scaling" + ("" if point.efficiency else ", on one machine")


def _marked(rows: Sequence[dict[str, Any]], value: str) -> list[dict[str, Any]]:
    """Say in each row whether its line is drawn: those that end highest, as many as there are colours."""
    reached = {row["line"]: row[value] for row in sorted(rows, key=lambda row: int(row["devices"]))}
    kept = sorted(reached, key=lambda line: -reached[line])[:MOST_SERIES]
    return [{**row, "shown": row["line"] in kept} for row in rows]


def _domain(rows: Sequence[DataRow], value: str) -> tuple[float, float]:
    """Return the ends of the vertical axis, which holds ideal scaling too."""
    ideal = [point["ideal"] for point in _perfect(rows, value)]
    return linear_domain([row for row in rows if row["shown"]], value, zero=True, bounds=ideal)


def _note(rows: Sequence[DataRow]) -> str:
    """Return the kind of scaling that all lines share, which no line then names, and what is left out."""
    every = {row["line"] for row in rows}
    drawn = {row["line"] for row in rows if row["shown"]}
    kinds = sorted({row["kinds"] for row in rows})
    shared = f"All lines: {kinds[0]}." if len(kinds) == 1 else ""
    left_out = f"The {len(drawn)} of {len(every)} lines that scale best are drawn; all stand in the data."
    return " ".join(part for part in (shared, left_out if drawn != every else "") if part)


def _best(rows: Sequence[DataRow]) -> str:
    most = max(row["devices"] for row in rows)
    return "; ".join(
        f"{row['line']}: {row['words']} on {most}" for row in rows if row["devices"] == most and row["shown"]
    )


def _draw(
    palette: Palette, rows: Sequence[DataRow], domain: tuple[float, float], value: str, title: str, number_format: str
) -> Chart:
    names = list(dict.fromkeys(row["line"] for row in rows if row["shown"]))
    x = alt.X("devices:O", title="devices", axis=alt.Axis(labelAngle=0))
    scale = alt.Scale(domain=list(domain), nice=False)
    y = alt.Y(f"{value}:Q", title=title, axis=alt.Axis(format=number_format, tickCount=6), scale=scale)
    colour = alt.Color("line:N", scale=alt.Scale(domain=names), legend=alt.Legend(columns=1, symbolType="circle"))
    tooltip = [
        alt.Tooltip("line:N", title="series"),
        alt.Tooltip("devices:O", title="devices"),
        alt.Tooltip("words:N", title=title),
    ]
    base = alt.Chart(ROWS).transform_filter("datum.shown").encode(x=x, color=colour, tooltip=tooltip)
    intervals = base.mark_rule(strokeWidth=2).encode(y=alt.Y("from:Q", scale=scale), y2=alt.Y2("to:Q"))
    return alt.layer(
        *([_ideal(palette, rows, value)] if any(row["added"] for row in rows) else []),
        base.mark_line().encode(y=y),
        *([_law(base, scale)] if have(rows, "law") else []),
        *([intervals] if have(rows, "low") else []),
        *upright_arrows(base, rows, scale),
        base.mark_point(filled=True, size=80).encode(y=y),
    ).properties(height=280)


def _law(base: alt.Chart, scale: alt.Scale) -> alt.Chart:
    known = base.transform_filter("isValid(datum.law)")
    line: alt.Chart = known.mark_line(strokeDash=[1, 3], strokeWidth=2).encode(y=alt.Y("law:Q", scale=scale))
    return line


def _ideal(palette: Palette, rows: Sequence[DataRow], value: str) -> alt.Chart:
    line = alt.Chart(alt.InlineData(values=_perfect(rows, value))).mark_line(
        color=palette.muted, strokeDash=[4, 4], strokeWidth=1.5, aria=False
    )
    ideal: alt.Chart = line.encode(x=alt.X("devices:O"), y=alt.Y("ideal:Q"))
    return ideal


def _perfect(rows: Sequence[DataRow], value: str) -> list[dict[str, float]]:
    """Return perfect scaling where devices were added: the device ratio for a speed-up, 1 for an efficiency."""
    devices = sorted({row["devices"] for row in rows if row["added"]})
    return [{"devices": count, "ideal": count / devices[0] if value == "speedup" else 1} for count in devices]
