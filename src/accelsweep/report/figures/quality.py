"""The model quality that each setting reached."""

from __future__ import annotations

from typing import Any

import altair as alt

from accelsweep.records.estimates import Verdict
from accelsweep.records.findings import Findings
from accelsweep.report import formatting as fmt
from accelsweep.report.figures.axes import arrows, clipped, interval_fields, linear_domain, row_axis, tooltip
from accelsweep.report.figures.figure import MAX_ROWS, ROW_PIXELS, Chart, Figure, Layer, Palette, Skipped, has_values

COLUMNS = ("setting", "label", "quality", "low", "high", "confidence", "count", "quality_verdict")
_DIRECTION = {"max": ", higher is better", "min": ", lower is better"}


def quality_figure(findings: Findings) -> Figure | Skipped:
    """Return a chart of each setting's quality with its interval, or the reason why it was not drawn."""
    rows = [
        {
            "setting": setting.setting,
            "label": setting.label,
            "role": "baseline" if setting.verdict is Verdict.baseline else "compared",
            "quality": setting.quality.value,
            **interval_fields(setting.quality),
            "quality_verdict": setting.quality_verdict,
            "words": fmt.estimate_text(setting.quality),
        }
        for setting in findings.settings
        if setting.quality is not None
    ]
    if not rows:
        return Skipped("quality", "no run recorded a quality")
    domain = linear_domain(rows[:MAX_ROWS], "quality", zero=False)
    rows = [
        {**clipped(row, domain), "key": f"{position} {row['label']}", "shown": position < MAX_ROWS}
        for position, row in enumerate(rows)
    ]
    metric = findings.quality_metric or "quality"
    title = metric + _DIRECTION.get(findings.quality_better or "", "")
    return Figure(
        name="quality",
        alt=f"{metric} of {fmt.count(len(rows), 'setting')} with intervals.",
        rows=rows,
        columns=COLUMNS,
        draw=lambda palette: _draw(palette, rows[:MAX_ROWS], domain, title),
        note=f"The first {MAX_ROWS} of {len(rows)} settings; the CSV contains all." if len(rows) > MAX_ROWS else "",
    )


def _draw(palette: Palette, rows: list[dict[str, Any]], domain: tuple[float, float], title: str) -> Chart:
    y = row_axis([row["key"] for row in rows], grid=True).scale(type="point", padding=0.5)
    scale = alt.Scale(domain=list(domain), nice=False)
    x = alt.X("quality:Q", title=title, scale=scale, axis=alt.Axis(tickCount=6, grid=False))
    roles = ["baseline", "compared"]
    colour = alt.Color("role:N", scale=alt.Scale(domain=roles, range=[palette.ink, palette.series[0]]))
    shape = alt.Shape("role:N", scale=alt.Scale(domain=roles, range=["circle", "square"]))
    titles = {"label": "setting", "words": title, "quality_verdict": "against the baseline"}
    base = Layer().transform_filter("datum.shown").encode(y=y, color=colour, tooltip=tooltip(titles))
    intervals = base.mark_rule(strokeWidth=2).encode(x=alt.X("from:Q", scale=scale), x2=alt.X2("to:Q"))
    return alt.layer(
        *([intervals] if has_values(rows, "low") else []),
        *arrows(base, rows, scale),
        base.mark_point(filled=True, size=80).encode(x=x, shape=shape),
    ).properties(height=ROW_PIXELS * len(rows), usermeta={"rows": len(rows)})
