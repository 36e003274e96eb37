"""The forest plot: each setting's speed-up with its interval and every repeat, against the baseline."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import altair as alt

from accelsweep.records.estimates import Verdict
from accelsweep.records.findings import CellFinding, Findings, RunPoint
from accelsweep.report import units as fmt
from accelsweep.report.figures.axes import arrows, clipped, ratio_domain, ratio_ticks
from accelsweep.report.figures.figure import (
    MOST_CELLS,
    ROWS,
    SHAPES,
    Chart,
    DataRow,
    Figure,
    Palette,
    Skipped,
    have,
    verdict_colours,
)

FIRST_CELLS = 8
"""So many lines fit the first screen; the page draws the others when a box is ticked, pictures draw them all."""

ROW_STEP = 24
"""Height of one line, in pixels."""

COLUMNS = ("kind", "cell", "label", "verdict", "ratio", "low", "high", "confidence", "count", "paired", "run")


def speedup_figure(findings: Findings) -> Figure | Skipped:
    """Return the forest plot, or why there is none."""
    compared = [cell for cell in findings.cells if cell.ratio is not None or cell.verdict is Verdict.baseline]
    if all(cell.verdict is Verdict.baseline for cell in compared):
        return Skipped("speedup", "no setting could be compared with the baseline")
    compared.sort(key=lambda cell: -_ratio(cell))
    settings = [_row(cell, position) for position, cell in enumerate(compared)]
    settings = _first(settings)
    drawn = [row for row in settings if row["shown"]]
    domain = ratio_domain(drawn, 1 / (1 + findings.threshold), 1 + findings.threshold)
    rows = [clipped(row, domain) for row in settings]
    repeats = [_repeat(row, point, domain) for row, cell in zip(settings, compared, strict=True) for point in cell.runs]
    rows += [row for row in repeats if row["ratio"] is not None]
    rows += _absent(findings)
    beyond = (
        ""
        if len(drawn) == len(settings)
        else f"The {len(drawn)} fastest of {len(settings)} settings; all stand in the data."
    )
    return Figure(
        name="speedup",
        alt=f"Forest plot of {fmt.count(len(drawn), 'setting')}: {_verdict_counts(compared)}.",
        rows=rows,
        columns=COLUMNS,
        draw=lambda palette: _draw(palette, rows, domain, findings),
        note=beyond,
    )


def _first(settings: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Mark the lines of the first screen: the fastest ones, and the baseline for the last of them."""
    others = [row for row in settings if row["verdict"] != Verdict.baseline.value]
    first = {row["key"] for row in others[: FIRST_CELLS - (len(settings) - len(others))]}
    return [{**row, "first": row["key"] in first or row["verdict"] == Verdict.baseline.value} for row in settings]


def _ratio(cell: CellFinding) -> float:
    return 1.0 if cell.ratio is None else cell.ratio.value


def _verdict_counts(compared: Sequence[CellFinding]) -> str:
    counts = {verdict: sum(cell.verdict is verdict for cell in compared) for verdict in Verdict}
    return ", ".join(f"{count} {verdict.value}" for verdict, count in counts.items() if count)


def _row(cell: CellFinding, position: int) -> dict[str, Any]:
    """Return a row of the forest; the baseline stands at 1x by definition, without an interval."""
    ratio = cell.ratio
    return {
        "kind": "setting",
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
        "run": None,
        "shown": position < MOST_CELLS or cell.verdict is Verdict.baseline,
        "words": fmt.ratio_text(ratio) if ratio else "1x by definition",
        "rate": fmt.estimate_text(cell.rate),
    }


def _repeat(row: DataRow, point: RunPoint, domain: tuple[float, float]) -> dict[str, Any]:
    """Return a repeat's row; one that lies beyond the axis is in the data only."""
    ratio = point.ratio
    inside = ratio is not None and domain[0] <= ratio <= domain[1]
    nothing = dict.fromkeys(("low", "high", "from", "to", "under", "over", "confidence", "count", "paired"))
    words = "" if ratio is None else f"{fmt.number(ratio, 'x')} in repeat {point.repeat}"
    own = {"kind": "repeat", "ratio": ratio, "run": point.run, "shown": row["shown"] and inside, "words": words}
    return {**row, **nothing, **own}


def _absent(findings: Findings) -> list[dict[str, Any]]:
    """Return one row for all settings without a rate, with the first reason; none where each has one."""
    without = [cell for cell in findings.cells if cell.verdict is Verdict.not_measured]
    if not without:
        return []
    reasons = list(dict.fromkeys(cell.verdict_reason for cell in without))
    more = f", and {fmt.count(len(reasons) - 1, 'other reason')}" if len(reasons) > 1 else ""
    label = f"{fmt.count(len(without), 'setting')} not measured"
    nothing = dict.fromkeys(
        ("cell", "low", "high", "from", "to", "under", "over", "confidence", "count", "paired", "run")
    )
    own = {"kind": "absent", "label": label, "key": f"{len(findings.cells)} {label}", "words": f"{reasons[0]}{more}"}
    return [
        {**nothing, **own, "verdict": Verdict.not_measured.value, "ratio": None, "rate": ""}
        | {"shown": True, "first": True}
    ]


def _draw(palette: Palette, rows: Sequence[DataRow], domain: tuple[float, float], findings: Findings) -> Chart:
    drawn = [row for row in rows if row["shown"]]
    settings = [row for row in drawn if row["kind"] == "setting"]
    keys = list(dict.fromkeys(row["key"] for row in drawn if row["kind"] != "repeat"))
    axis = alt.Axis(values=ratio_ticks(domain), labelExpr="format(datum.value, '~r') + 'x'")
    scale = alt.Scale(type="log", domain=list(domain), nice=False)
    x = alt.X("ratio:Q", scale=scale, axis=axis, title="rate relative to the baseline")
    y = alt.Y(
        "key:N",
        sort=keys,
        title=None,
        scale=alt.Scale(type="point", padding=0.5),
        axis=alt.Axis(labelExpr="slice(datum.label, indexof(datum.label, ' ') + 1)", grid=False),
    )
    colour, shape = _verdict_marks(palette, settings)
    tooltip = [alt.Tooltip(f"{key}:N", title=title) for key, title in _TOOLTIP.items()]
    base = alt.Chart(ROWS).transform_filter("datum.shown").encode(y=y)
    of = {kind: base.transform_filter(f"datum.kind == '{kind}'") for kind in ("setting", "repeat", "absent")}
    intervals = (
        of["setting"]
        .mark_rule(strokeWidth=2)
        .encode(x=alt.X("from:Q", scale=scale), x2=alt.X2("to:Q"), color=colour, tooltip=tooltip)
    )
    chart: Chart = alt.layer(
        *_ground(palette, findings.threshold, scale),
        *([_grey_line(palette, of["absent"])] if any(row["kind"] == "absent" for row in drawn) else []),
        *([intervals] if have(settings, "low") else []),
        *arrows(of["setting"], settings, scale, color=colour, tooltip=tooltip),
        of["setting"].mark_point(filled=True, size=95).encode(x=x, color=colour, shape=shape, tooltip=tooltip),
        _dots(palette, of["repeat"]).encode(x=x, tooltip=tooltip),
    ).properties(height=ROW_STEP * len(keys), usermeta={"step": ROW_STEP})
    return chart


def _dots(palette: Palette, base: alt.Chart) -> alt.Chart:
    dots: alt.Chart = base.mark_circle(size=22, opacity=1, stroke=palette.page, strokeWidth=0.5, color=palette.ink)
    return dots


def _ground(palette: Palette, threshold: float, scale: alt.Scale) -> list[alt.Chart]:
    """Return the band of differences that count as none, and the line of the baseline."""
    nothing = alt.Chart(alt.InlineData(values=[{}]))
    band = nothing.mark_rect(color=palette.band, aria=False)
    one = nothing.mark_rule(color=palette.muted, strokeDash=[3, 3], aria=False)
    return [
        band.encode(x=alt.XDatum(1 / (1 + threshold), type="quantitative", scale=scale), x2=alt.X2Datum(1 + threshold)),
        one.encode(x=alt.XDatum(1, type="quantitative", scale=scale)),
    ]


def _grey_line(palette: Palette, base: alt.Chart) -> alt.Chart:
    """Return the words of the settings without a rate, in grey at the left end of their line."""
    words = base.mark_text(align="left", baseline="middle", color=palette.muted, fontSize=12, limit=400)
    line: alt.Chart = words.encode(x=alt.value(4), text=alt.Text("words:N"))
    return line


_TOOLTIP = {"label": "setting", "verdict": "verdict", "words": "speed-up", "rate": "rate"}


def _verdict_marks(palette: Palette, drawn: Sequence[DataRow]) -> tuple[alt.Color, alt.Shape]:
    """Return the colour and the shape of the verdicts that occur, so that they share one legend."""
    present = [verdict for verdict in Verdict if any(row["verdict"] == verdict.value for row in drawn)]
    names = [verdict.value for verdict in present]
    colours = [verdict_colours(palette)[verdict] for verdict in present]
    shapes = [SHAPES[verdict] for verdict in present]
    return (
        alt.Color("verdict:N", scale=alt.Scale(domain=names, range=colours)),
        alt.Shape("verdict:N", scale=alt.Scale(domain=names, range=shapes)),
    )
