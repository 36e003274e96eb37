"""The ladder's figure: the speed-up of each rung over the first one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import altair as alt

from accelsweep.config.setting import option_words
from accelsweep.features.ladder.model import Rung
from accelsweep.features.ladder.report import rungs_of
from accelsweep.records.estimates import Verdict
from accelsweep.records.findings import Findings
from accelsweep.report import formatting as fmt
from accelsweep.report.figures.axes import arrows, clipped, ratio_domain, ratio_ticks, series_encodings
from accelsweep.report.figures.figure import ROW_PIXELS, Chart, DataRow, Figure, Layer, Palette, Skipped, has_values

COLUMNS = ("ladder", "hardware", "step", "setting", "ratio", "low", "high", "confidence", "count", "gain", "reason")

MAX_LADDERS = 8
"""The number of colours in the palette."""


def ladder_figure(findings: Findings) -> Figure | Skipped:
    """Return the rungs' speed-ups over the first one, or why there is nothing to draw."""
    rungs = rungs_of(findings)
    if not rungs:
        return Skipped("ladder", "the experiment defines no ladder (report.ladder)")
    rows = [{**_figure_row(rung), "place": place} for place, rung in enumerate(rungs)]
    if sum(row["ratio"] is not None for row in rows) < 2:
        measured = sum(rung.rate is not None for rung in rungs)
        return Skipped("ladder", f"fewer than two rungs {'were measured' if measured < 2 else 'can be compared'}")
    lines = list(dict.fromkeys(row["line"] for row in rows))
    for row in rows:
        row["shown"] = row["line"] in lines[:MAX_LADDERS] and row["ratio"] is not None
    domain = ratio_domain([row for row in rows if row["shown"]], 1.0)
    rows = [clipped(row, domain) for row in rows]
    note = (
        "" if len(lines) <= MAX_LADDERS else f"{MAX_LADDERS} of {len(lines)} ladders are drawn; the data contains all."
    )
    speedups = "; ".join(f"{row['name']} {row['words']}" for row in rows if row["shown"])
    return Figure(
        name="ladder",
        alt=f"Speed-up over the first rung: {speedups}.",
        rows=rows,
        columns=COLUMNS,
        draw=lambda palette: _draw(palette, rows, domain),
        note=note,
    )


def _figure_row(rung: Rung) -> dict[str, Any]:
    """Return a row of the figure. The first measured rung has no ratio, and is at 1x by definition."""
    total, first = rung.total, rung.total_verdict is Verdict.baseline
    reason = ""
    if total is None and not first:  # `rung.reason` only explains a missing ratio to the previous rung
        reason = rung.reason if rung.gain is None else f"{rung.total_verdict.value}: not comparable with the first rung"
    return {
        "ladder": rung.ladder,
        "hardware": rung.hardware,
        "line": ", ".join(part for part in (rung.ladder, rung.hardware) if part),
        "step": rung.step,
        "name": option_words(rung.step),
        "setting": rung.setting,
        "ratio": total.value if total else 1.0 if first else None,
        "low": total.low if total else None,
        "high": total.high if total else None,
        "confidence": total.confidence if total else None,
        "count": total.count if total else None,
        "gain": rung.gain.value if rung.gain else None,
        "words": fmt.ratio_text(total) if total else "1x by definition" if first else reason,
        "gained": fmt.ratio_text(rung.gain) if rung.gain else "the first rung" if first else rung.verdict.value,
        "rate": fmt.estimate_text(rung.rate, rung.reason),
        "reason": reason,
    }


_TOOLTIP = {
    "line": "ladder",
    "name": "rung",
    "words": "over the first",
    "gained": "over the rung before",
    "rate": "rate",
}


def _draw(palette: Palette, rows: Sequence[DataRow], domain: tuple[float, float]) -> Chart:
    drawn = [row for row in rows if row["shown"]]
    names = list(dict.fromkeys(row["name"] for row in rows))
    axis = alt.Axis(values=ratio_ticks(domain), labelExpr="format(datum.value, '~r') + 'x'")
    scale = alt.Scale(type="log", domain=list(domain), nice=False)
    x = alt.X("ratio:Q", scale=scale, axis=axis, title="rate relative to the first rung")
    y = alt.Y("name:N", sort=names, title=None, scale=alt.Scale(type="point", padding=0.5, domain=names))
    lines = list(dict.fromkeys(row["line"] for row in drawn))
    encodings = series_encodings("line", lines, palette, columns=1)
    tooltip = [alt.Tooltip(f"{key}:N", title=title) for key, title in _TOOLTIP.items()]
    base = Layer().transform_filter("datum.shown").encode(y=y, color=encodings["color"], tooltip=tooltip)
    unity = Layer(alt.InlineData(values=[{}])).mark_rule(color=palette.muted, strokeDash=[3, 3], aria=False)
    intervals = base.mark_rule(strokeWidth=2).encode(x=alt.X("from:Q", scale=scale), x2=alt.X2("to:Q"))
    return alt.layer(
        unity.encode(x=alt.XDatum(1, type="quantitative", scale=scale)),
        base.mark_line(strokeWidth=1).encode(x=x, order=alt.Order("place:Q")),
        *([intervals] if has_values(drawn, "low") else []),
        *arrows(base, drawn, scale),
        base.mark_point(filled=True, size=95).encode(x=x, shape=encodings["shape"]),
    ).properties(height=ROW_PIXELS * len(names), usermeta={"rows": len(names)})
