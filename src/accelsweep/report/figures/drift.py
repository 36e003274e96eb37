"""Drift: the rate of the baseline, which runs in every block, over time."""

from __future__ import annotations

from typing import Any

import altair as alt

from accelsweep.records.findings import Findings, SettingFinding
from accelsweep.report import formatting as fmt
from accelsweep.report.figures.axes import tooltip
from accelsweep.report.figures.figure import SI_AXIS, Chart, Figure, Layer, Palette, Skipped, has_values

COLUMNS = ("setting", "run", "block", "number", "position", "started_at", "rate", "doubts")

_MIN_RUNS = 3
_REACH = 1.5
"""The axis extends at most this factor below and above the mean; runs beyond its ends are drawn as arrows."""


def drift_figure(findings: Findings) -> Figure | Skipped:
    """Return a chart of the baseline's rate over time, or the reason why it was not drawn."""
    baseline = next(
        (setting for setting in findings.settings if setting.setting == findings.baseline and setting.rate), None
    )
    rows = _rows(baseline) if baseline else []
    if baseline is None or baseline.rate is None or len(rows) < _MIN_RUNS:
        return Skipped("drift", f"the baseline has fewer than {_MIN_RUNS} measured runs")
    mean = baseline.rate.value
    band = mean / (1 + findings.threshold), mean * (1 + findings.threshold)
    rates = [row["rate"] for row in rows]
    low = max(min([*rates, band[0]]), mean / _REACH)
    high = min(max([*rates, band[1]]), mean * _REACH)
    padding = 0.04 * (high - low)
    bottom, top = float(f"{low - padding:.6g}"), float(f"{high + padding:.6g}")
    for row in rows:
        row["seen"] = row["rate"] if bottom <= row["rate"] <= top else None
        row["under"] = bottom if row["rate"] < bottom else None
        row["over"] = top if row["rate"] > top else None
    blocks = len({row["block"] for row in rows})
    return Figure(
        name="drift",
        alt=f"Rate of the baseline over time: {fmt.count(len(rows), 'run')} in {fmt.count(blocks, 'block')}.",
        rows=rows,
        columns=COLUMNS,
        draw=lambda palette: _draw(palette, rows, (bottom, top), band, fmt.unit_word(findings.rate_unit)),
    )


def _rows(baseline: SettingFinding) -> list[dict[str, Any]]:
    """Return the measured runs in chronological order; blocks are numbered in that order."""
    timed = [point for point in baseline.runs if point.rate is not None and point.started_at is not None]
    timed.sort(key=lambda point: str(point.started_at))
    numbers = {block: number for number, block in enumerate(dict.fromkeys(point.block for point in timed), 1)}
    return [
        {
            "setting": baseline.setting,
            "run": point.run,
            "block": point.block,
            "number": f"block {numbers[point.block]}",
            "position": point.position,
            "started_at": point.started_at,
            "rate": point.rate,
            "doubts": ", ".join(dict.fromkeys(doubt.code for doubt in point.doubts)),
            "words": fmt.number(point.rate),
        }
        for point in timed
    ]


def _draw(
    palette: Palette, rows: list[dict[str, Any]], domain: tuple[float, float], band: tuple[float, float], unit: str
) -> Chart:
    scale = alt.Scale(domain=list(domain), nice=False)
    x = alt.X("started_at:T", title="time (UTC)", scale=alt.Scale(type="utc", padding=14), axis=alt.Axis(tickCount=6))
    y = alt.Y("seen:Q", title=f"rate of the baseline ({unit})", scale=scale, axis=SI_AXIS)
    titles = {"number": "block", "position": "position in it", "words": "rate", "doubts": "doubts"}
    base = Layer().encode(x=x, tooltip=tooltip(titles))
    seen = base.transform_filter("isValid(datum.seen)")
    same = (
        Layer(alt.InlineData(values=[{}]))
        .mark_rect(color=palette.band, aria=False)
        .encode(y=alt.YDatum(band[0], type="quantitative", scale=scale), y2=alt.Y2Datum(band[1]))
    )
    arrows = [
        base.transform_filter(f"isValid(datum.{end})")
        .mark_point(shape=shape, filled=True, size=70, color=palette.ink)
        .encode(y=alt.Y(f"{end}:Q", scale=scale))
        for end, shape in (("under", "triangle-down"), ("over", "triangle-up"))
        if has_values(rows, end)
    ]
    return alt.layer(
        same,
        seen.mark_line(strokeWidth=1, color=palette.muted).encode(y=y, detail=alt.Detail("block:N")),
        seen.mark_point(filled=True, size=55, color=palette.ink).encode(y=y),
        *arrows,
    ).properties(height=220)
