"""Quality beside speed: the quality that each cell's models reached."""

from __future__ import annotations

from typing import Any

import altair as alt

from accelsweep.records.estimates import Verdict
from accelsweep.records.findings import CellFinding, Findings
from accelsweep.report import units as fmt
from accelsweep.report.figures.axes import arrows, clipped, linear_domain
from accelsweep.report.figures.figure import MOST_CELLS, ROW_PIXELS, ROWS, Chart, Figure, Palette, Skipped, have

COLUMNS = ("cell", "label", "quality", "low", "high", "confidence", "count", "quality_verdict")
_BETTER = {"max": ", higher is better", "min": ", lower is better"}


def quality_figure(findings: Findings) -> Figure | Skipped:
    """Return the quality of each cell with its interval, or why there is none."""
    judged = [cell for cell in findings.cells if cell.quality is not None]
    if not judged:
        return Skipped("quality", "no run recorded a quality")
    rows = [_row(cell, position) for position, cell in enumerate(judged)]
    domain = linear_domain([row for row in rows if row["shown"]], "quality", zero=False)
    rows = [clipped(row, domain) for row in rows]
    metric = findings.quality_metric or "quality"
    better = _BETTER.get(findings.quality_better or "", "")
    note = f"The first {MOST_CELLS} of {len(rows)} settings; all stand in the data." if len(rows) > MOST_CELLS else ""
    return Figure(
        name="quality",
        alt=f"{metric} of {fmt.count(len(rows), 'setting')} with intervals.",
        rows=rows,
        columns=COLUMNS,
        draw=lambda palette: _draw(palette, rows, domain, f"{metric}{better}"),
        note=note,
    )


def _row(cell: CellFinding, position: int) -> dict[str, Any]:
    assert cell.quality is not None
    return {
        "cell": cell.cell,
        "label": cell.label,
        "key": f"{position} {cell.label}",
        "shown": position < MOST_CELLS,
        "role": "baseline" if cell.verdict is Verdict.baseline else "compared",
        "quality": cell.quality.value,
        "low": cell.quality.low,
        "high": cell.quality.high,
        "confidence": cell.quality.confidence,
        "count": cell.quality.count,
        "quality_verdict": cell.quality_verdict,
        "words": fmt.estimate_text(cell.quality),
    }


def _draw(palette: Palette, rows: list[dict[str, Any]], domain: tuple[float, float], title: str) -> Chart:
    shown = [row for row in rows if row["shown"]]
    y = alt.Y(
        "key:N",
        sort=[row["key"] for row in shown],
        title=None,
        scale=alt.Scale(type="point", padding=0.5),
        axis=alt.Axis(labelExpr="slice(datum.label, indexof(datum.label, ' ') + 1)", grid=True),
    )
    reach = alt.Scale(domain=list(domain), nice=False)
    x = alt.X("quality:Q", title=title, scale=reach, axis=alt.Axis(tickCount=6, grid=False))
    scale = alt.Scale(domain=["baseline", "compared"], range=[palette.ink, palette.accent])
    colour = alt.Color("role:N", scale=scale)
    shape = alt.Shape("role:N", scale=alt.Scale(domain=["baseline", "compared"], range=["circle", "square"]))
    titles = {"label": "setting", "words": title, "quality_verdict": "against the baseline"}
    tooltip = [alt.Tooltip(f"{key}:N", title=words) for key, words in titles.items()]
    base = alt.Chart(ROWS).transform_filter("datum.shown").encode(y=y, color=colour, tooltip=tooltip)
    intervals = base.mark_rule(strokeWidth=2).encode(x=alt.X("from:Q", scale=reach), x2=alt.X2("to:Q"))
    return alt.layer(
        *([intervals] if have(shown, "low") else []),
        *arrows(base, shown, reach),
        base.mark_point(filled=True, size=80).encode(x=x, shape=shape),
    ).properties(height=ROW_PIXELS * len(shown), usermeta={"rows": len(shown)})
