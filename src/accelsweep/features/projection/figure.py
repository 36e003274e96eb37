"""The figure with the projected rates, dashed so that no bar can be mistaken for a measured one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import altair as alt

from accelsweep.features.projection.model import Projections
from accelsweep.features.projection.report import NAME, are_alike, times_text
from accelsweep.records.findings import Findings
from accelsweep.report.figures.figure import ROW_PIXELS, Chart, DataRow, Figure, Layer, Palette, Skipped

COLUMNS = ("device", "form", "projected_rate", "projected_low", "projected_high", "measured_here")


def projection_figure(findings: Findings) -> Figure | Skipped:
    """Return the projected rates as dashed bars, or why there is nothing to draw."""
    projections = findings.section(Projections)
    if projections is None or projections.reason is not None:
        return Skipped(NAME, (projections and projections.reason) or "there is nothing to project")
    rows = [
        {
            "device": projection.name,
            "form": projection.form,
            "line": f"{projection.name}, {projection.form.partition(' (')[0]}",
            "projected_rate": projection.rate.value,
            "projected_low": projection.rate.low,
            "projected_high": projection.rate.high,
            "measured_here": projections.rate_here,
            "words": f"{projection.rate.words} samples/s",
            "over": times_text(projection.ratio),
        }
        for projection in projections.devices
        if projection.rate is not None
    ]
    if not rows:
        return Skipped(NAME, "no projection was possible; the table lists the reasons")
    if are_alike([one.rate.value for one in projections.devices if one.rate is not None]):
        return Skipped(NAME, "the devices hardly differ; the section says how")
    rates = "; ".join(f"{row['line']} {row['words']}" for row in rows)
    return Figure(
        name=NAME,
        alt=f"Projected, not measured: {rates}.",
        rows=rows,
        columns=COLUMNS,
        draw=lambda palette: _draw(palette, rows, projections.rate_here),
    )


_TOOLTIP = {"line": "device", "words": "projected, not measured", "over": "over this machine"}


def _draw(palette: Palette, rows: Sequence[DataRow], here: float | None) -> Chart:
    lines = [row["line"] for row in rows]
    axis = alt.Axis(labelExpr="format(datum.value, '~s')", tickCount=6)
    scale = alt.Scale(type="log", nice=False)
    title = "projected samples/s, with 90 % intervals"
    x = alt.X("projected_low:Q", scale=scale, axis=axis, title=title)
    y = alt.Y("line:N", sort=lines, title=None, scale=alt.Scale(type="band", padding=0.4, domain=lines))
    tooltip = [alt.Tooltip(f"{key}:N", title=name) for key, name in _TOOLTIP.items()]
    base = Layer().encode(y=y, tooltip=tooltip)
    layers: list[Any] = [
        base.mark_bar(stroke=palette.muted, strokeDash=[4, 3], fill=palette.band, height=12).encode(
            x=x, x2=alt.X2("projected_high:Q")
        ),
        base.mark_tick(color=palette.muted, thickness=2, height=12).encode(x=alt.X("projected_rate:Q", scale=scale)),
    ]
    if here is not None:
        rule = Layer(alt.InlineData(values=[{}])).mark_rule(color=palette.ink, aria=False)
        layers.append(rule.encode(x=alt.XDatum(here, type="quantitative", scale=scale)))
    return alt.layer(*layers).properties(height=ROW_PIXELS * len(lines), usermeta={"rows": len(lines)})
