"""The time of a step by part: one stacked bar for each cell with a probe pass."""

from __future__ import annotations

from typing import Any

import altair as alt

from accelsweep.records.findings import CellFinding, Findings, StepBottleneck
from accelsweep.records.run_record import PARTS
from accelsweep.report import units as fmt
from accelsweep.report.figures.figure import ROW_PIXELS, ROWS, Chart, Figure, Palette, Skipped

COLUMNS = ("cell", "label", "part", "share", "verdict", "count")
MOST_BARS = 40
LETTER = 0.017
"""A letter's share of a bar on a phone."""

_WORDS = {part: part.replace("_", " ") for part in PARTS}


def breakdown_figure(findings: Findings) -> Figure | Skipped:
    """Return the shares of a step for each cell, or why there are none."""
    known = [(cell, cell.bottleneck) for cell in findings.cells if cell.bottleneck is not None]
    if not known:
        return Skipped("breakdown", "no run broke its steps down (measure.probe_steps)")
    shown = known[:MOST_BARS]
    rows = [row for position, pair in enumerate(shown) for row in _rows(position, *pair)]
    verdicts = list(dict.fromkeys(bottleneck.verdict for _, bottleneck in known))
    return Figure(
        name="breakdown",
        alt=f"Shares of a step of {fmt.count(len(shown), 'setting')}: {', '.join(verdicts)}.",
        rows=rows,
        columns=COLUMNS,
        draw=lambda palette: _draw(palette, rows),
        note=f"The first {len(shown)} of {len(known)} settings." if len(shown) < len(known) else "",
    )


def _rows(position: int, cell: CellFinding, found: StepBottleneck) -> list[dict[str, Any]]:
    return [
        {
            "cell": cell.cell,
            "label": cell.label,
            "key": f"{position} {cell.label}",
            "part": _WORDS[part],
            "order": PARTS.index(part),
            "share": share,
            "words": fmt.share(share),
            "inside": _inside(_WORDS[part], share),
            "verdict": found.verdict,
            "evidence": found.evidence,
            "count": found.count,
        }
        for part, share in found.shares.items()
    ]


def _inside(part: str, share: float) -> str:
    """Return the words that fit a segment of this share: its part, in grey print too, or nothing."""
    number = f"{round(100 * share)} %"
    fitting = (words for words in (f"{part} {number}", number) if share >= LETTER * len(words))
    return next(fitting, "")


def _draw(palette: Palette, rows: list[dict[str, Any]]) -> Chart:
    keys = list(dict.fromkeys(row["key"] for row in rows))
    y = alt.Y(
        "key:N",
        sort=keys,
        title=None,
        axis=alt.Axis(labelExpr="slice(datum.label, indexof(datum.label, ' ') + 1)"),
    )
    x = alt.X("share:Q", title="share of a step", stack="zero", axis=alt.Axis(format="%", tickCount=6, grid=False))
    scale = alt.Scale(domain=list(_WORDS.values()), range=list(palette.series[: len(_WORDS)]))
    colour = alt.Color("part:N", scale=scale, legend=alt.Legend(columns=4, symbolType="square"))
    titles = {"label": "setting", "part": "part", "words": "share", "verdict": "bottleneck", "evidence": "because"}
    tooltip = [alt.Tooltip(f"{key}:N", title=words) for key, words in titles.items()]
    bars = alt.Chart(ROWS).mark_bar(height=ROW_PIXELS * 0.6, stroke=palette.page, strokeWidth=1)
    chart = bars.encode(x=x, y=y, color=colour, order=alt.Order("order:O"), tooltip=tooltip)
    words = alt.Chart(ROWS).mark_text(color=palette.page, fontSize=11)
    middle = alt.X("share:Q", stack="zero", bandPosition=0.5)
    labels = words.encode(
        x=middle, y=y, order=alt.Order("order:O"), detail=alt.Detail("part:N"), text=alt.Text("inside:N")
    )
    return alt.layer(chart, labels).properties(height=ROW_PIXELS * len(keys), usermeta={"rows": len(keys)})
