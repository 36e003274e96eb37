"""The projections: rates on devices that were not measured, as dashed bars, never as marks of measurements."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import altair as alt

from accelsweep.core.findings.projections import Projected
from accelsweep.records.findings import Findings
from accelsweep.report.elsewhere.table import ELSEWHERE, about, times
from accelsweep.report.figures.figure import ROW_PIXELS, ROWS, Chart, DataRow, Figure, Palette, Skipped

COLUMNS = ("device", "form", "projected_rate", "projected_low", "projected_high", "measured_here")


def elsewhere_figure(findings: Findings) -> Figure | Skipped:
    """Return the projected rates with their intervals, or why there is nothing to draw."""
    found = findings.elsewhere
    if found is None or found.reason is not None:
        return Skipped(ELSEWHERE, (found and found.reason) or "there is nothing to project")
    rows = [_row(one, found.rate_here) for one in found.devices if one.rate is not None]
    if not rows:
        return Skipped(ELSEWHERE, "no device could be projected; the table has the reasons")
    words = "; ".join(f"{row['line']} {row['words']}" for row in rows)
    return Figure(
        name=ELSEWHERE,
        alt=f"Projected, not measured: {words}.",
        rows=rows,
        columns=COLUMNS,
        draw=lambda palette: _draw(palette, rows, found.rate_here),
    )


def _row(one: Projected, here: float | None) -> dict[str, Any]:
    assert one.rate is not None, "only projections are drawn"
    return {
        "device": one.name,
        "form": one.form,
        "line": f"{one.name}, {one.form.partition(' (')[0]}",
        "projected_rate": one.rate.value,
        "projected_low": one.rate.low,
        "projected_high": one.rate.high,
        "measured_here": here,
        "words": f"{about(one.rate)} samples/s",
        "over": times(one.ratio),
    }


def _draw(palette: Palette, rows: Sequence[DataRow], here: float | None) -> Chart:
    lines = [row["line"] for row in rows]
    axis = alt.Axis(labelExpr="format(datum.value, '~s')", tickCount=6)
    scale = alt.Scale(type="log", nice=False)
    title = "projected samples per second, with 90 % intervals"
    x = alt.X("projected_low:Q", scale=scale, axis=axis, title=title)
    y = alt.Y("line:N", sort=lines, title=None, scale=alt.Scale(type="band", padding=0.4, domain=lines))
    tooltip = [alt.Tooltip(f"{key}:N", title=name) for key, name in _TOOLTIP.items()]
    base = alt.Chart(ROWS).encode(y=y, tooltip=tooltip)
    layers: list[Any] = [
        base.mark_bar(stroke=palette.muted, strokeDash=[4, 3], fill=palette.band, height=12).encode(
            x=x, x2=alt.X2("projected_high:Q")
        ),
        base.mark_tick(color=palette.muted, thickness=2, height=12).encode(x=alt.X("projected_rate:Q", scale=scale)),
    ]
    if here is not None:
        rule = alt.Chart(alt.InlineData(values=[{}])).mark_rule(color=palette.ink, aria=False)
        layers.append(rule.encode(x=alt.XDatum(here, type="quantitative", scale=scale)))
    return alt.layer(*layers).properties(height=ROW_PIXELS * len(lines), usermeta={"rows": len(lines)})


_TOOLTIP = {"line": "device", "words": "projected, not measured", "over": "over this machine"}
