"""Scaling: speed-up and efficiency by number of devices."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import altair as alt

from accelsweep.records.estimates import Estimate
from accelsweep.records.findings import Findings, ScalingPoint
from accelsweep.report import formatting as fmt
from accelsweep.report.figures.axes import (
    arrows,
    clipped,
    interval_fields,
    linear_domain,
    lines_note,
    series_encodings,
)
from accelsweep.report.figures.figure import MAX_SERIES, Chart, DataRow, Figure, Layer, Palette, Skipped, has_values


def scaling_figure(findings: Findings) -> Figure | Skipped:
    """Return a chart of speed-up by number of devices, with ideal scaling, or the reason why it was not drawn."""
    return _figure(findings, "scaling", "speedup", "Speed-up", "speed-up over the smallest device count", "~r")


def efficiency_figure(findings: Findings) -> Figure | Skipped:
    """Return a chart of scaling efficiency by number of devices, or the reason why it was not drawn."""
    return _figure(findings, "efficiency", "efficiency", "Scaling efficiency", "efficiency", "~%")


def _figure(
    findings: Findings, name: str, value: str, title: str, axis_title: str, number_format: str
) -> Figure | Skipped:
    rows = _rows(findings, value)
    if not findings.scaling:
        return Skipped(name, "no setting was measured at two device counts")
    if not rows:
        return Skipped(name, "no device was added: more ranks on one processor only divide the same machine further")
    largest = {row["line"]: row[value] for row in sorted(rows, key=lambda row: int(row["devices"]))}
    drawn = sorted(largest, key=lambda line: -largest[line])[:MAX_SERIES]
    rows = [{**row, "shown": row["line"] in drawn} for row in rows]
    ideal = _ideal(rows, value)
    domain = linear_domain(
        [row for row in rows if row["shown"]], value, zero=True, bounds=[point["ideal"] for point in ideal]
    )
    rows = [clipped(row, domain) for row in rows]
    most = max(row["devices"] for row in rows)
    best = [f"{row['line']}: {row['words']} on {most}" for row in rows if row["devices"] == most and row["shown"]]
    kinds = {row["kinds"] for row in rows}
    notes = [f"All lines: {kinds.pop()}."] if len(kinds) == 1 else []
    notes.append(lines_note(len(drawn), len(largest), "best-scaling"))
    return Figure(
        name=name,
        alt=f"{title} against devices: {'; '.join(best)}.",
        rows=rows,
        columns=("series", "kind", "setting", "devices", value, "low", "high", "confidence", "count", "law"),
        draw=lambda palette: _draw(palette, rows, domain, value, axis_title, number_format),
        note=" ".join(filter(None, notes)),
    )


def _rows(findings: Findings, value: str) -> list[dict[str, Any]]:
    rows = []
    kinds = {_kind(point) for point in findings.scaling}
    laws = {(law.kind, law.series): dict(zip(law.devices, law.speedups, strict=True)) for law in findings.laws}
    for point in findings.scaling:
        estimate: Estimate | None = getattr(point, value)
        if estimate is None:
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
                "setting": point.setting,
                "devices": point.devices,
                value: estimate.value,
                **interval_fields(estimate),
                "law": law[point.devices] / ideal if point.devices in law else None,
                "words": fmt.estimate_text(estimate),
            }
        )
    return rows


def _kind(point: ScalingPoint) -> str:
    return f"{point.kind} scaling" + ("" if point.efficiency else ", on one machine")


def _ideal(rows: Sequence[DataRow], value: str) -> list[dict[str, float]]:
    """Return ideal scaling where devices were added: the ratio of device counts for speed-up, 1 for efficiency."""
    devices = sorted({row["devices"] for row in rows if row["added"]})
    return [{"devices": count, "ideal": count / devices[0] if value == "speedup" else 1} for count in devices]


def _draw(
    palette: Palette, rows: Sequence[DataRow], domain: tuple[float, float], value: str, title: str, number_format: str
) -> Chart:
    names = list(dict.fromkeys(row["line"] for row in rows if row["shown"]))
    scale = alt.Scale(domain=list(domain), nice=False)
    y = alt.Y(f"{value}:Q", title=title, axis=alt.Axis(format=number_format, tickCount=6), scale=scale)
    encodings = series_encodings("line", names, palette, columns=1)
    tooltip = [
        alt.Tooltip("line:N", title="series"),
        alt.Tooltip("devices:O", title="devices"),
        alt.Tooltip("words:N", title=title),
    ]
    x = alt.X("devices:O", title="devices", axis=alt.Axis(labelAngle=0))
    base = Layer().transform_filter("datum.shown").encode(x=x, color=encodings["color"], tooltip=tooltip)
    ideal = (
        Layer(alt.InlineData(values=_ideal(rows, value)))
        .mark_line(color=palette.muted, strokeDash=[4, 4], strokeWidth=1.5, aria=False)
        .encode(x=alt.X("devices:O"), y=alt.Y("ideal:Q"))
    )
    law = base.transform_filter("isValid(datum.law)").mark_line(strokeDash=[1, 3], strokeWidth=2)
    intervals = base.mark_rule(strokeWidth=2).encode(y=alt.Y("from:Q", scale=scale), y2=alt.Y2("to:Q"))
    return alt.layer(
        *([ideal] if any(row["added"] for row in rows) else []),
        base.mark_line().encode(y=y),
        *([law.encode(y=alt.Y("law:Q", scale=scale))] if has_values(rows, "law") else []),
        *([intervals] if has_values(rows, "low") else []),
        *arrows(base, rows, scale, vertical=True),
        base.mark_point(filled=True, size=80).encode(y=y, shape=encodings["shape"]),
    ).properties(height=280)
