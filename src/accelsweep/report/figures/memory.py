"""Memory against batch size, one line per combination of the other axes, with the device's limit where it is known."""

from __future__ import annotations

from typing import Any

import altair as alt

from accelsweep.records.findings import CellFinding, Findings
from accelsweep.records.metrics import MEMORY_METRICS
from accelsweep.records.run_record import Outcome
from accelsweep.report import units as fmt
from accelsweep.report.figures.axes import MOST_SERIES, linear_domain, main_outcome, round_ticks, series_of
from accelsweep.report.figures.figure import ROWS, Chart, Figure, Palette, Skipped, have
from accelsweep.report.setting_table import MEMORIES

COLUMNS = ("cell", "series", "batch_size", "metric", "bytes", "low", "high", "limit", "outcome")

_MEBI = 2**20


def memory_figure(findings: Findings) -> Figure | Skipped:
    """Return the memory of each setting against its batch size, or why there is none."""
    if len({cell.axes.get("batch_size") for cell in findings.cells}) < 2:
        return Skipped("memory", "batch_size took one value only")
    for metric in MEMORY_METRICS:
        rows = [_row(findings, cell, metric) for cell in findings.cells if "batch_size" in cell.axes]
        if sum(row["bytes"] is not None for row in rows) > 1:
            return _figure(rows, metric)
    return Skipped("memory", "fewer than two settings have a memory of one kind")


def _figure(rows: list[dict[str, Any]], metric: str) -> Figure:
    names = list(dict.fromkeys(row["series"] for row in rows if row["bytes"] is not None))[:MOST_SERIES]
    kept = [{**row, "shown": row["series"] in names} for row in rows]
    drawn = [row for row in kept if row["shown"]]
    domain = linear_domain(drawn, "bytes", zero=True)
    limits = sorted({row["limit"] for row in drawn if row["limit"] is not None})
    if limits and limits[0] < 2 * domain[1]:
        domain = (domain[0], max(domain[1], 1.04 * limits[0]))
    every = len(dict.fromkeys(row["series"] for row in rows))
    left_out = (
        f"The first {len(names)} of {every} lines are drawn; all stand in the data." if len(names) < every else ""
    )
    return Figure(
        name="memory",
        alt=f"{MEMORIES[metric].capitalize()} against batch size in {fmt.count(len(names), 'line')}.",
        rows=kept,
        columns=COLUMNS,
        draw=lambda palette: _draw(palette, drawn, domain, [limit for limit in limits if limit <= domain[1]], metric),
        note=" ".join(part for part in (left_out, _limit_words(limits, domain)) if part),
    )


def _limit_words(limits: list[float], domain: tuple[float, float]) -> str:
    """Return where the limit is: in the picture, beyond it, or not known."""
    if not limits:
        return "The device's memory is not known."
    beyond = [fmt.number(limit, "B") for limit in limits if limit > domain[1]]
    return f"The limit of {' and '.join(beyond)} is far above this axis." if beyond else ""


def _row(findings: Findings, cell: CellFinding, metric: str) -> dict[str, Any]:
    summary = cell.metrics.get(metric)
    used = summary.median if summary else None
    outcome = main_outcome(cell)
    return {
        "cell": cell.cell,
        "series": series_of(cell, findings),
        "batch_size": cell.axes["batch_size"],
        "metric": metric,
        "bytes": used,
        "low": summary.minimum if summary else None,
        "high": summary.maximum if summary else None,
        "limit": _limit_of(cell),
        "outcome": outcome.value,
        "ended": outcome is Outcome.out_of_memory,
        "words": fmt.number(used, "B") if used is not None else fmt.outcome_words(outcome),
        "share": cell.memory_words,
    }


def _limit_of(cell: CellFinding) -> float | None:
    """Return the device's memory in bytes, of which the finding states the share that the setting took, or None."""
    known = (cell.metrics[name].median for name in MEMORY_METRICS if name in cell.metrics)
    used = next((value for value in known if value is not None), None)
    return float(f"{used / cell.memory_share:.3g}") if used and cell.memory_share else None


def _draw(
    palette: Palette, rows: list[dict[str, Any]], domain: tuple[float, float], limits: list[float], metric: str
) -> Chart:
    names = list(dict.fromkeys(row["series"] for row in rows))
    ticks = [tick * _MEBI for tick in round_ticks(domain[0] / _MEBI, domain[1] / _MEBI) if tick * _MEBI <= domain[1]]
    scale = alt.Scale(domain=list(domain), nice=False)
    axis = alt.Axis(values=ticks, labelExpr=f"format(datum.value / {_MEBI}, ',~r')")
    y = alt.Y("bytes:Q", title=f"{MEMORIES[metric]} (MiB)", scale=scale, axis=axis)
    x = alt.X("batch_size:O", title="batch size per device", axis=alt.Axis(labelAngle=0))
    colours = alt.Scale(domain=names, range=list(palette.series[: len(names)]))
    colour = alt.Color("series:N", scale=colours, legend=alt.Legend(columns=2, symbolType="circle"))
    titles = {"series": "setting", "batch_size": "batch size", "words": "memory", "share": "share"}
    tooltip = [alt.Tooltip(f"{key}:N", title=title) for key, title in titles.items()]
    base = alt.Chart(ROWS).transform_filter("datum.shown").encode(x=x, color=colour, tooltip=tooltip)
    measured = base.transform_filter("isValid(datum.bytes)")
    ended = base.transform_filter("datum.ended").mark_point(shape="cross", size=110, angle=45, filled=True)
    return alt.layer(
        *(_limit(palette, limit, scale) for limit in limits),
        measured.mark_line().encode(y=y),
        measured.mark_point(filled=True, size=70).encode(y=y),
        *([ended.encode(y=alt.value(8))] if have(rows, "ended") else []),
    ).properties(height=280)


def _limit(palette: Palette, limit: float, scale: alt.Scale) -> Chart:
    """Return the line at the limit with its words."""
    nothing = alt.Chart(alt.InlineData(values=[{}])).encode(y=alt.YDatum(limit, type="quantitative", scale=scale))
    line = nothing.mark_rule(color=palette.muted, strokeDash=[4, 4], aria=False)
    words = nothing.mark_text(align="left", dy=-7, color=palette.muted, text=f"limit: {fmt.number(limit, 'B')}")
    return alt.layer(line, words.encode(x=alt.value(4)))
