"""Rate against its price: money, energy or memory, with the recommended cell and its alternatives named."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any

import altair as alt

from accelsweep.analysis.costs import one_energy_scope
from accelsweep.records.findings import CellFinding, Findings
from accelsweep.records.metrics import MEMORY_METRICS
from accelsweep.report import units as fmt
from accelsweep.report.figures.axes import round_ticks
from accelsweep.report.figures.figure import ROWS, SI_AXIS, Chart, Figure, Palette, Skipped
from accelsweep.report.setting_table import ENERGY, MEMORIES, cost_of

COLUMNS = ("cell", "label", "rate", "metric", "value", "unit", "role")


@dataclass(frozen=True)
class TradeOff:
    """A price that a rate is drawn against: the figure's name, the price in a word, and its metrics, best first."""

    figure: str
    title: str
    metrics: tuple[str, ...]

    def title_of(self, metric: str) -> str:
        """Return the name of the axis that shows this metric: not every memory is a peak."""
        return MEMORIES.get(metric, self.title)


PRICES = (
    TradeOff("pareto-cost", "cost", ("usd_per_result", "usd_per_million_samples")),
    TradeOff("pareto-energy", "energy", (ENERGY,)),
    TradeOff("pareto-memory", "memory", MEMORY_METRICS),
)


def tradeoff_figures(findings: Findings) -> list[Figure | Skipped]:
    """Return one figure per price, each of them drawn or skipped with the reason."""
    return [_tradeoff(findings, price) for price in PRICES]


def _tradeoff(findings: Findings, price: TradeOff) -> Figure | Skipped:
    if ENERGY in price.metrics and (scopes := _energy_scopes(findings)):
        return Skipped(price.figure, f"energy of different scopes does not compare: {' and '.join(scopes)}")
    for metric in price.metrics:
        rows = [row for cell in findings.cells if (row := _row(findings, cell, metric)) is not None]
        if len(rows) > 1:
            _name_sides(rows)
            title = price.title_of(metric)
            return Figure(
                name=price.figure,
                alt=f"{fmt.count(len(rows), 'setting')} by rate and {title}.",
                rows=rows,
                columns=COLUMNS,
                draw=partial(_draw, title=title, rows=rows, unit=fmt.unit_word(findings.rate_unit)),
            )
    return Skipped(price.figure, f"fewer than two settings have both a rate and {price.title}{_why(findings, price)}")


def _energy_scopes(findings: Findings) -> list[str]:
    """Return the scopes of the cells' energy if they differ; nothing if the energies can be compared."""
    cells = [cell for cell in findings.cells if _row(findings, cell, ENERGY) is not None]
    if one_energy_scope(cells):
        return []
    return sorted({cell.metrics["energy_joules"].scope or "an unknown scope" for cell in cells})


def _name_sides(rows: list[dict[str, Any]]) -> None:
    """Choose the side of its mark for a chosen cell's name, so that it stays inside the picture."""
    middle = (min(row["value"] for row in rows) + max(row["value"] for row in rows)) / 2
    for row in rows:
        named = row["role"] in ("recommended", "alternative")
        row["name_side"] = ("left" if row["value"] > middle else "right") if named else None


def _why(findings: Findings, price: TradeOff) -> str:
    """Return the first stated reason why this price was neither measured nor given, if any."""
    if price.figure == "pareto-cost" and findings.costs_note:
        return f" ({findings.costs_note})"
    for cell in findings.cells:
        for metric in price.metrics:
            if metric in cell.metrics and (reason := cell.metrics[metric].reason):
                return f" ({reason})"
    return ""


def _row(findings: Findings, cell: CellFinding, metric: str) -> dict[str, Any] | None:
    value, unit = _price_of(cell, metric)
    if cell.rate is None or value is None:
        return None
    return {
        "cell": cell.cell,
        "label": cell.label,
        "rate": cell.rate.value,
        "metric": metric,
        "value": value,
        "unit": unit,
        "role": _role(findings, cell),
        "rate_words": fmt.estimate_text(cell.rate),
        "value_words": fmt.number(value, unit),
    }


def _price_of(cell: CellFinding, metric: str) -> tuple[float | None, str]:
    """Return a cell's price in this metric, and its unit; None where it was neither measured nor priced."""
    if (cost := cost_of(cell, metric)) is not None:
        return cost.value, cost.unit
    summary = cell.metrics.get(metric)
    return (summary.median, summary.unit) if summary else (None, "")


def _role(findings: Findings, cell: CellFinding) -> str:
    advice = findings.recommendation
    if advice.choice is not None and advice.choice.chooses(cell):
        return "recommended"
    if any(choice.chooses(cell) for choice in advice.alternatives):
        return "alternative"
    if cell.cell == findings.baseline:
        return "baseline"
    return "on the Pareto front" if cell.cell in findings.pareto else "other"


def _draw(palette: Palette, *, title: str, rows: list[dict[str, Any]], unit: str) -> Chart:
    looks = {
        "recommended": (palette.accent, "diamond"),
        "alternative": (palette.undecided, "triangle-up"),
        "baseline": (palette.ink, "circle"),
        "on the Pareto front": (palette.accent, "triangle-right"),
        "other": (palette.muted, "square"),
    }
    roles = [role for role in looks if any(row["role"] == role for row in rows)]
    titles = {"label": "setting", "role": "role", "rate_words": "rate", "value_words": title}
    colour = alt.Color("role:N", scale=alt.Scale(domain=roles, range=[looks[role][0] for role in roles]))
    shape = alt.Shape("role:N", scale=alt.Scale(domain=roles, range=[looks[role][1] for role in roles]))
    base = alt.Chart(ROWS).encode(
        x=_price_axis(title, rows),
        y=alt.Y("rate:Q", title=f"rate ({unit})", axis=SI_AXIS),
        color=colour,
    )
    tooltip = [alt.Tooltip(f"{key}:N", title=words) for key, words in titles.items()]
    left = base.transform_filter("datum.name_side == 'left'").mark_text(align="right", dx=-10, limit=220)
    right = base.transform_filter("datum.name_side == 'right'").mark_text(align="left", dx=10, limit=220)
    sides = {row["name_side"] for row in rows}
    names = [
        names.encode(text=alt.Text("label:N")) for side, names in (("left", left), ("right", right)) if side in sides
    ]
    return alt.layer(
        base.mark_point(filled=True, size=100).encode(shape=shape, tooltip=tooltip),
        *names,
    ).properties(height=320)


def _price_axis(title: str, rows: list[dict[str, Any]]) -> alt.X:
    """Return the horizontal axis; bytes are ticked at round mebibytes, because the tables count in them too."""
    values, unit = [row["value"] for row in rows], str(rows[0]["unit"])
    scale = alt.Scale(zero=False, padding=24)
    if unit not in ("B", "bytes"):
        return alt.X("value:Q", title=f"{title} ({unit})", scale=scale, axis=SI_AXIS)
    ticks = round_ticks(min(values) / 2**20, max(values) / 2**20)
    axis = alt.Axis(values=[tick * 2**20 for tick in ticks], labelExpr="format(datum.value / 1048576, ',~r')")
    return alt.X("value:Q", title=f"{title} (MiB)", scale=scale, axis=axis)
