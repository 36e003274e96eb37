"""The forest plot: each cell's speed-up against the baseline, with its interval and its verdict."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import altair as alt

from accelsweep.core.findings import CellFinding, Findings, Verdict
from accelsweep.report import format as fmt
from accelsweep.report.figures.figure import ROW_PIXELS, ROWS, Chart, Figure, Row, Skipped, have
from accelsweep.report.figures.theme import SHAPES, Palette, verdict_colours

MOST_CELLS = 60
"""A forest of more lines than this is no picture any more; the rest stands in the CSV and the table."""

COLUMNS = ("cell", "label", "verdict", "ratio", "low", "high", "confidence", "count", "paired")
_TICKS = (0.01, 0.02, 0.05, 0.1, 0.2, 0.25, 0.33, 0.5, 0.67, 0.8, 0.9, 0.95, 1, 1.05, 1.1, 1.25, 1.5, 2, 3, 4, 6, 8, 12)
_FINE_TICKS = (0.96, 0.97, 0.98, 0.99, 1, 1.01, 1.02, 1.03, 1.04)


def speedup_figure(findings: Findings) -> Figure | Skipped:
    """Return the forest plot, or why there is none."""
    compared = [cell for cell in findings.cells if cell.speedup is not None or cell.verdict is Verdict.baseline]
    if all(cell.verdict is Verdict.baseline for cell in compared):
        return Skipped("speedup", "no setting could be compared with the baseline")
    compared.sort(key=lambda cell: -_ratio(cell))
    rows = [_row(cell, position) for position, cell in enumerate(compared)]
    drawn = [row for row in rows if row["shown"]]
    note = (
        "" if len(drawn) == len(rows) else f"The {len(drawn)} fastest of {len(rows)} settings; all stand in the data."
    )
    return Figure(
        name="speedup",
        alt=f"Forest plot of {fmt.count(len(drawn), 'setting')}: {_verdict_counts(compared)}.",
        rows=rows,
        columns=COLUMNS,
        draw=lambda palette: _draw(palette, drawn, findings.threshold),
        note=note,
    )


def _ratio(cell: CellFinding) -> float:
    return cell.speedup.ratio.value if cell.speedup else 1.0


def _verdict_counts(compared: Sequence[CellFinding]) -> str:
    counts = {verdict: sum(cell.verdict is verdict for cell in compared) for verdict in Verdict}
    return ", ".join(f"{count} {verdict.value}" for verdict, count in counts.items() if count)


def _row(cell: CellFinding, position: int) -> dict[str, Any]:
    """Return a row of the forest; the baseline stands at 1x by definition, without an interval."""
    ratio = cell.speedup.ratio if cell.speedup else None
    return {
        "cell": cell.cell,
        "label": cell.label,
        "key": f"{position} {cell.label}",
        "verdict": cell.verdict.value,
        "ratio": _ratio(cell),
        "low": ratio.low if ratio else None,
        "high": ratio.high if ratio else None,
        "confidence": ratio.confidence if ratio else None,
        "count": ratio.count if ratio else cell.measured,
        "paired": cell.speedup.paired if cell.speedup else None,
        "shown": position < MOST_CELLS or cell.verdict is Verdict.baseline,
        "words": fmt.ratio_text(ratio) if ratio else "1x by definition",
        "rate": fmt.estimate_text(cell.rate),
    }


def ratio_domain(rows: Sequence[Row], *bounds: float) -> tuple[float, float]:
    """Return a domain for a logarithmic axis that holds every interval and the given bounds, with a little air."""
    values = [row[key] for row in rows for key in ("low", "ratio", "high") if row[key] is not None and row[key] > 0]
    low, high = min([*values, *bounds]), max([*values, *bounds])
    air = max((high / low) ** 0.06, 1.01)
    return float(f"{low / air:.6g}"), float(f"{high * air:.6g}")


def ratio_ticks(domain: tuple[float, float]) -> list[float]:
    """Return round values for a logarithmic axis of ratios; at least two unless the domain is tiny."""
    low, high = domain
    known = _FINE_TICKS if high / low < 1.12 else _TICKS
    inside = [tick for tick in known if low <= tick <= high]
    powers = [2.0**power for power in range(4, math.ceil(math.log2(high)) + 1) if high > 16 and 2.0**power <= high]
    wide = [tick for tick in inside if high / low < 2.5 or tick not in (0.95, 1.05, 0.9, 1.1)]
    return wide + powers


def _draw(palette: Palette, drawn: Sequence[Row], threshold: float) -> Chart:
    domain = ratio_domain(drawn, 1 / (1 + threshold), 1 + threshold)
    axis = alt.Axis(values=ratio_ticks(domain), labelExpr="format(datum.value, '~r') + 'x'")
    scale = alt.Scale(type="log", domain=list(domain), nice=False)
    x = alt.X("ratio:Q", scale=scale, axis=axis, title="rate relative to the baseline")
    y = alt.Y(
        "key:N",
        sort=[row["key"] for row in drawn],
        title=None,
        scale=alt.Scale(type="point", padding=0.5),
        axis=alt.Axis(labelExpr="slice(datum.label, indexof(datum.label, ' ') + 1)", grid=False),
    )
    colour, shape = _verdict_marks(palette, drawn)
    tooltip = [alt.Tooltip(f"{key}:N", title=title) for key, title in _TOOLTIP.items()]
    base = alt.Chart(ROWS).transform_filter("datum.shown").encode(y=y)
    band = alt.Chart(alt.InlineData(values=[{}])).mark_rect(color=palette.band)
    one = alt.Chart(alt.InlineData(values=[{}])).mark_rule(color=palette.muted, strokeDash=[3, 3])
    intervals = base.mark_rule(strokeWidth=2).encode(
        x=alt.X("low:Q", scale=scale), x2="high:Q", color=colour, tooltip=tooltip
    )
    return alt.layer(
        band.encode(x=alt.XDatum(1 / (1 + threshold), type="quantitative", scale=scale), x2=alt.X2Datum(1 + threshold)),
        one.encode(x=alt.XDatum(1, type="quantitative", scale=scale)),
        *([intervals] if have(drawn, "low") else []),
        base.mark_point(filled=True, size=95).encode(x=x, color=colour, shape=shape, tooltip=tooltip),
    ).properties(height=ROW_PIXELS * len(drawn), usermeta={"rows": len(drawn)})


_TOOLTIP = {"label": "setting", "verdict": "verdict", "words": "speed-up", "rate": "rate"}


def _verdict_marks(palette: Palette, drawn: Sequence[Row]) -> tuple[alt.Color, alt.Shape]:
    """Return the colour and the shape of the verdicts that occur, so that they share one legend."""
    present = [verdict for verdict in Verdict if any(row["verdict"] == verdict.value for row in drawn)]
    names = [verdict.value for verdict in present]
    colours = [verdict_colours(palette)[verdict] for verdict in present]
    shapes = [SHAPES[verdict] for verdict in present]
    return (
        alt.Color("verdict:N", scale=alt.Scale(domain=names, range=colours)),
        alt.Shape("verdict:N", scale=alt.Scale(domain=names, range=shapes)),
    )
