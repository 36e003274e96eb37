"""Step time broken down by part: a stacked bar for each setting with a probe pass."""

from __future__ import annotations

from typing import Any

import altair as alt

from accelsweep.records.findings import Findings
from accelsweep.report import formatting as fmt
from accelsweep.report.figures.axes import row_axis, tooltip
from accelsweep.report.figures.figure import ROW_PIXELS, Chart, Figure, Layer, Palette, Skipped
from accelsweep.results import PARTS

COLUMNS = ("setting", "label", "part", "share", "verdict", "count")
MAX_BARS = 40
LETTER = 0.0195
"""Approximate width of a letter on a phone screen, as a fraction of a bar's width."""

_COLOURS = (3, 1, 2, 0, 4, 5, 6)
"""The place of each part's colour in the palette's series; the part that is the largest in most steps has the first."""

_PART_NAMES = {part: part.replace("_", " ") for part in PARTS}


def breakdown_figure(findings: Findings) -> Figure | Skipped:
    """Return a chart of each setting's step-time shares, or the reason why it was not drawn."""
    known = [(setting, setting.bottleneck) for setting in findings.settings if setting.bottleneck is not None]
    if not known:
        return Skipped("breakdown", "no run includes a breakdown of its steps (measure.probe_steps)")
    shown = known[:MAX_BARS]
    rows = [
        {
            "setting": setting.setting,
            "label": setting.label,
            "key": f"{position} {setting.label}",
            "part": _PART_NAMES[part],
            "order": PARTS.index(part),
            "share": share,
            "words": fmt.share(share),
            "inside": _bar_label(_PART_NAMES[part], share),
            "verdict": bottleneck.verdict,
            "evidence": bottleneck.evidence,
            "count": bottleneck.count,
        }
        for position, (setting, bottleneck) in enumerate(shown)
        for part, share in bottleneck.shares.items()
    ]
    verdicts = list(dict.fromkeys(bottleneck.verdict for _, bottleneck in known))
    return Figure(
        name="breakdown",
        alt=f"Breakdown of a step in {fmt.count(len(shown), 'setting')}: {', '.join(verdicts)}.",
        rows=rows,
        columns=COLUMNS,
        draw=lambda palette: _draw(palette, rows),
        note=f"The first {len(shown)} of {len(known)} settings." if len(shown) < len(known) else "",
    )


def _bar_label(part: str, share: float) -> str:
    """Return the longest label that fits a segment of this share: name and number, only the number, or nothing."""
    number = f"{round(100 * share)} %"
    return next((text for text in (f"{part} {number}", number) if share >= LETTER * len(text)), "")


def _draw(palette: Palette, rows: list[dict[str, Any]]) -> Chart:
    keys = list(dict.fromkeys(row["key"] for row in rows))
    y, order = row_axis(keys), alt.Order("order:O")
    parts, colours = list(_PART_NAMES.values()), [palette.series[place] for place in _COLOURS]
    scale = alt.Scale(domain=parts, range=colours)
    text_scale = alt.Scale(domain=parts, range=[palette.text_on(colour) for colour in colours])
    titles = {"label": "setting", "part": "part", "words": "share", "verdict": "bottleneck", "evidence": "because"}
    bars = (
        Layer()
        .mark_bar(height=ROW_PIXELS * 0.6, stroke=palette.page, strokeWidth=1)
        .encode(
            x=alt.X("share:Q", title="share of a step", stack="zero", axis=_SHARE_AXIS),
            y=y,
            color=alt.Color("part:N", scale=scale, legend=alt.Legend(columns=3, symbolType="square")),
            order=order,
            tooltip=tooltip(titles),
        )
    )
    labels = (
        Layer()
        .mark_text(fontSize=11)
        .encode(
            x=alt.X("share:Q", stack="zero", bandPosition=0.5),
            y=y,
            order=order,
            color=alt.Color("part:N", scale=text_scale, legend=None),
            text=alt.Text("inside:N"),
        )
    )
    chart: Chart = alt.layer(bars, labels).resolve_scale(color="independent")
    return chart.properties(height=ROW_PIXELS * len(keys), usermeta={"rows": len(keys)})


_SHARE_AXIS = alt.Axis(format="%", tickCount=6, grid=False)
