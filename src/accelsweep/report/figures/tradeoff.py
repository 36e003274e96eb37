"""Rate against what it costs: money, energy or memory, with the recommended cell and its alternatives named."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import altair as alt

from accelsweep.core.findings import CellFinding, Findings
from accelsweep.report import format
from accelsweep.report.figures.figure import ROWS, Figure, Skipped
from accelsweep.report.figures.theme import Palette

COLUMNS = ("cell", "label", "rate", "metric", "value", "unit", "role")


@dataclass(frozen=True)
class Price:
    """What a rate is held against: a figure's name, its axis title, and the metrics that serve, best first."""

    figure: str
    title: str
    metrics: tuple[str, ...]


PRICES = (
    Price("pareto-cost", "cost", ("cost_usd_per_million_samples", "cost_usd_per_epoch")),
    Price("pareto-energy", "energy", ("energy_joules_per_sample", "joules_per_sample")),
    Price("pareto-memory", "peak memory", ("peak_memory_allocated_bytes", "device_memory_used_bytes", "host_pss_bytes")),
)


def tradeoff_figures(findings: Findings) -> list[Figure | Skipped]:
    """Return one figure per price, each of them drawn or skipped with the reason."""
    return [_tradeoff(findings, price) for price in PRICES]


def _tradeoff(findings: Findings, price: Price) -> Figure | Skipped:
    for metric in price.metrics:
        rows = [row for cell in findings.cells if (row := _row(findings, cell, metric)) is not None]
        if len(rows) > 1:
            return Figure(
                name=price.figure,
                alt=f"{format.count(len(rows), 'cell')} by rate and {price.title}.",
                rows=rows,
                columns=COLUMNS,
                draw=lambda palette, unit=str(rows[0]["unit"]): _draw(palette, price, unit),  # type: ignore[misc]
            )
    return Skipped(price.figure, f"fewer than two cells have both a rate and {price.title}{_why(findings, price)}")


def _why(findings: Findings, price: Price) -> str:
    """Return the first stated reason why this price was not measured, if any."""
    for cell in findings.cells:
        for metric in price.metrics:
            if metric in cell.metrics and (reason := cell.metrics[metric].reason):
                return f" ({reason})"
    return ""


def _row(findings: Findings, cell: CellFinding, metric: str) -> dict[str, Any] | None:
    value = cell.metrics.get(metric)
    if cell.samples_per_second is None or value is None or value.median is None:
        return None
    return {
        "cell": cell.cell,
        "label": cell.label,
        "rate": cell.samples_per_second.value,
        "metric": metric,
        "value": value.median,
        "unit": value.unit,
        "role": _role(findings, cell.cell),
        "rate_words": format.estimate_text(cell.samples_per_second),
        "value_words": format.summary(value),
    }


def _role(findings: Findings, cell: str) -> str:
    advice = findings.recommendation
    if advice.choice is not None and advice.choice.cell == cell:
        return "recommended"
    if cell in {choice.cell for choice in advice.alternatives}:
        return "alternative"
    return "baseline" if cell == findings.baseline else "other"


def _draw(palette: Palette, price: Price, unit: str) -> alt.LayerChart:
    roles = ["recommended", "alternative", "baseline", "other"]
    colours = [palette.accent, palette.undecided, palette.ink, palette.muted]
    shapes = ["diamond", "triangle-up", "circle", "square"]
    size = 2**20 if unit.lower() in ("b", "bytes") else 1
    axis_title = f"{price.title} ({'MiB' if size > 1 else unit})"
    titles = {"label": "cell", "role": "role", "rate_words": "rate", "value_words": price.title}
    base = alt.Chart(ROWS).encode(
        x=alt.X(
            "value:Q",
            title=axis_title,
            scale=alt.Scale(zero=False, nice=True, padding=16),
            axis=alt.Axis(labelExpr=f"format(datum.value / {size}, ',.4~g')", tickCount=6),
        ),
        y=alt.Y("rate:Q", title="samples per second", axis=alt.Axis(format="~s", tickCount=6)),
        color=alt.Color("role:N", scale=alt.Scale(domain=roles, range=colours)),
        shape=alt.Shape("role:N", scale=alt.Scale(domain=roles, range=shapes)),
        tooltip=[alt.Tooltip(f"{key}:N", title=words) for key, words in titles.items()],
    )
    named = base.transform_filter("datum.role == 'recommended'")
    return alt.layer(
        base.mark_point(filled=True, size=100),
        named.mark_text(align="left", dx=9, dy=-9).encode(text="label:N", shape=alt.Undefined),
    ).properties(height=320)
