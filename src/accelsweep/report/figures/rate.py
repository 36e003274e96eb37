"""The rate over batch sizes: a heat map with precision down the side, and lines with failed cells marked as such."""

from __future__ import annotations

from typing import Any

import altair as alt

from accelsweep.records.findings import CellFinding, Findings
from accelsweep.report import units as fmt
from accelsweep.report.figures.axes import MOST_SERIES, clipped, linear_domain, main_outcome, series_of, upright_arrows
from accelsweep.report.figures.figure import ROWS, SI_AXIS, Chart, Figure, Palette, Skipped, have

COLUMNS = ("cell", "series", "batch_size", "rate", "low", "high", "confidence", "count", "outcome", "knee")
MOST_LINES = 40
"""A heat map with more lines than this does not fit a screen; the table has all cells."""

_FAILED = "!isValid(datum.rate)"
_MEASURED = "isValid(datum.rate)"
_TOOLTIP = [
    alt.Tooltip("series:N", title="setting"),
    alt.Tooltip("batch_size:O", title="batch size"),
    alt.Tooltip("words:N", title="rate"),
]


def heatmap_figure(findings: Findings) -> Figure | Skipped:
    """Return the heat map of rates over batch size and precision, or why there is none."""
    missing = [axis for axis in ("batch_size", "precision") if len(_values(findings, axis)) < 2]
    if missing:
        return Skipped("heatmap", f"{' and '.join(missing)} took one value only, so there is no plane to colour")
    every = _rows(findings)
    lines = list(dict.fromkeys(row["series"] for row in every))[:MOST_LINES]
    rows = [row for row in every if row["series"] in lines]
    if all(row["rate"] is None for row in rows):
        return Skipped("heatmap", "no setting has a rate")
    best = max((row for row in rows if row["rate"] is not None), key=lambda row: row["rate"])
    highest = f"{best['short']} {fmt.unit_word(findings.rate_unit)}"
    return Figure(
        name="heatmap",
        alt=f"Heat map of {fmt.count(len(rows), 'setting')}; the highest rate, {highest}, is at "
        f"{best['series']} and batch size {best['batch_size']}.",
        rows=rows,
        columns=COLUMNS,
        draw=lambda palette: _draw_heatmap(palette, rows),
        note=f"The first {len(rows)} of {len(every)} settings." if len(rows) < len(every) else "",
    )


def throughput_figure(findings: Findings) -> Figure | Skipped:
    """Return the rate against batch size, one line per combination of the other axes, or why there is none."""
    if len(_values(findings, "batch_size")) < 2:
        return Skipped("throughput", "batch_size took one value only")
    rows = _rows(findings)
    series = list(dict.fromkeys(row["series"] for row in rows))
    names = _fastest(rows, series)
    if not names:
        return Skipped("throughput", "no setting has a rate")
    domain = linear_domain([row for row in rows if row["series"] in names], "rate", zero=True)
    rows = [{**clipped(row, domain), "shown": row["series"] in names} for row in rows]
    failed = sum(row["rate"] is None for row in rows if row["shown"])
    note = ""
    if len(names) < len(series):
        note = f"The {len(names)} fastest of {len(series)} lines are drawn; all stand in the data."
    return Figure(
        name="throughput",
        alt=f"Rate against batch size in {fmt.count(len(names), 'line')}, "
        f"with {fmt.count(failed, 'setting')} without a rate.",
        rows=rows,
        columns=COLUMNS,
        draw=lambda palette: _draw_throughput(palette, rows, domain, fmt.unit_word(findings.rate_unit)),
        note=note,
    )


def _fastest(rows: list[dict[str, Any]], series: list[str]) -> list[str]:
    """Return the series with the highest rates, as many as can be told apart, in grid order."""
    best: dict[str, float] = {}
    for row in rows:
        if row["rate"] is not None:
            best[row["series"]] = max(row["rate"], best.get(row["series"], 0.0))
    kept = sorted(best, key=lambda name: -best[name])[:MOST_SERIES]
    return [name for name in series if name in kept]


def _values(findings: Findings, axis: str) -> set[str]:
    return {str(cell.axes[axis]) for cell in findings.cells if axis in cell.axes}


def _rows(findings: Findings) -> list[dict[str, Any]]:
    sizes = {cell.cell: cell.axes.get("batch_size") for cell in findings.cells}
    knees = {
        (curve.knee, curve.hardware)
        for curve in findings.batch_curves
        if curve.knee is not None and sizes.get(curve.knee) != curve.largest_measured  # there nothing flattens yet
    }
    placed = (cell for cell in findings.cells if "batch_size" in cell.axes)
    return [_row(cell, findings, (cell.cell, cell.hardware) in knees) for cell in placed]


def _row(cell: CellFinding, findings: Findings, is_knee: bool) -> dict[str, Any]:
    rate = cell.rate
    outcome = main_outcome(cell)
    reason = cell.reasons[0] if cell.reasons else cell.verdict_reason
    return {
        "cell": cell.cell,
        "series": series_of(cell, findings),
        "batch_size": cell.axes["batch_size"],
        "rate": rate.value if rate else None,
        "low": rate.low if rate else None,
        "high": rate.high if rate else None,
        "confidence": rate.confidence if rate else None,
        "count": rate.count if rate else 0,
        "outcome": outcome.value,
        "knee": is_knee,
        "short": fmt.number(rate.value) if rate else "no rate" if cell.measured else fmt.outcome_words(outcome),
        "words": fmt.estimate_text(rate, f"{fmt.outcome_words(outcome)}: {reason}"),
    }


def _draw_heatmap(palette: Palette, rows: list[dict[str, Any]]) -> Chart:
    rates = [row["rate"] for row in rows if row["rate"] is not None]
    lines = list(dict.fromkeys(row["series"] for row in rows))
    turn = min(rates) + palette.ramp_turn * (max(rates) - min(rates))
    base = alt.Chart(ROWS).encode(
        x=alt.X("batch_size:O", title="batch size per device", axis=alt.Axis(labelAngle=0)),
        y=alt.Y("series:N", sort=lines, title=None),
        tooltip=_TOOLTIP,
    )
    scale = alt.Scale(range=list(palette.ramp), zero=min(rates) == max(rates))
    tile = base.transform_filter(_MEASURED).mark_rect(stroke=palette.page, strokeWidth=3, cornerRadius=4)
    gap = base.transform_filter(_FAILED).mark_rect(
        fill=palette.band, stroke=palette.page, strokeWidth=3, cornerRadius=4
    )
    words = base.transform_filter(_MEASURED).mark_text(fontSize=13)
    ink = alt.condition(f"datum.rate > {turn!r}", alt.value(palette.on_ramp[1]), alt.value(palette.on_ramp[0]))
    return alt.layer(
        gap,
        tile.encode(color=alt.Color("rate:Q", scale=scale, legend=None)),
        words.encode(text=alt.Text("short:N"), color=ink),
        base.transform_filter(_FAILED).mark_text(fontSize=12, color=palette.muted).encode(text=alt.Text("short:N")),
    ).properties(height=44 * len(lines))


def _draw_throughput(palette: Palette, rows: list[dict[str, Any]], domain: tuple[float, float], unit: str) -> Chart:
    shown = [row for row in rows if row["shown"]]
    names = list(dict.fromkeys(row["series"] for row in shown))
    x = alt.X("batch_size:O", title="batch size per device", axis=alt.Axis(labelAngle=0))
    reach = alt.Scale(domain=list(domain), nice=False)
    y = alt.Y("rate:Q", title=f"rate ({unit})", axis=SI_AXIS, scale=reach)
    scale = alt.Scale(domain=names, range=list(palette.series[: len(names)]))
    colour = alt.Color("series:N", scale=scale, legend=alt.Legend(columns=2, symbolType="circle"))
    base = alt.Chart(ROWS).transform_filter("datum.shown").encode(x=x, color=colour, tooltip=_TOOLTIP)
    measured = base.transform_filter(_MEASURED)
    failed = base.transform_filter(_FAILED).mark_point(shape="cross", size=110, angle=45, filled=True)
    intervals = measured.mark_rule(strokeWidth=2).encode(y=alt.Y("from:Q", scale=reach), y2=alt.Y2("to:Q"))
    knees = measured.transform_filter("datum.knee").mark_point(filled=False, size=260, strokeWidth=1.5).encode(y=y)
    return alt.layer(
        measured.mark_line().encode(y=y),
        *([intervals] if have(shown, "low") else []),
        *upright_arrows(measured, shown, reach),
        measured.mark_point(filled=True, size=70).encode(y=y),
        *([knees] if have(shown, "knee") else []),
        *([failed.encode(y=alt.YDatum(0), yOffset=alt.value(-8))] if any(row["rate"] is None for row in shown) else []),
    ).properties(height=320)
