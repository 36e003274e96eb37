"""Rate against cost, energy or memory, with the recommended setting and its alternatives labelled."""

from __future__ import annotations

from functools import partial
from typing import Any

import altair as alt

from accelsweep.analysis.costs import same_energy_scope
from accelsweep.metrics import MEMORY_METRICS
from accelsweep.records.findings import Findings, SettingFinding
from accelsweep.report import formatting as fmt
from accelsweep.report.figures.axes import round_ticks, tooltip
from accelsweep.report.figures.figure import ROWS, SI_AXIS, Chart, Figure, Palette, Skipped
from accelsweep.report.setting_table import ENERGY, MEMORY_TITLES, cost_of

COLUMNS = ("setting", "label", "rate", "metric", "value", "unit", "role")

PRICES = {
    "cost": ("usd_per_result", "usd_per_million_samples"),
    "energy": (ENERGY,),
    "memory": MEMORY_METRICS,
}
"""What the `pareto-NAME` figures plot the rate against: for each, its metrics in order of preference."""

_ROLES = {
    "recommended": ("accent", "diamond"),
    "alternative": ("undecided", "triangle-up"),
    "baseline": ("ink", "circle"),
    "on the Pareto front": ("accent", "triangle-right"),
    "other": ("muted", "square"),
}
"""The palette colour and shape of a setting's mark, by role."""


def tradeoff_figures(findings: Findings) -> list[Figure | Skipped]:
    """Return one figure per trade-off, either drawn or skipped with a reason."""
    return [_tradeoff(findings, price) for price in PRICES]


def _tradeoff(findings: Findings, price: str) -> Figure | Skipped:
    if price == "energy":
        priced = [setting for setting in findings.settings if _row(findings, setting, ENERGY) is not None]
        if not same_energy_scope(priced):
            scopes = sorted({setting.metrics["energy_joules"].scope or "an unknown scope" for setting in priced})
            return Skipped("pareto-energy", f"energy of different scopes is not comparable: {' and '.join(scopes)}")
    for metric in PRICES[price]:
        rows = [row for setting in findings.settings if (row := _row(findings, setting, metric)) is not None]
        if len(rows) > 1:
            _place_names(rows)
            title = MEMORY_TITLES.get(metric, price)
            return Figure(
                name=f"pareto-{price}",
                alt=f"{fmt.count(len(rows), 'setting')} by rate and {title}.",
                rows=rows,
                columns=COLUMNS,
                draw=partial(_draw, title=title, rows=rows, unit=fmt.unit_word(findings.rate_unit)),
            )
    reason = f"fewer than two settings have both a rate and {price}{_missing_reason(findings, price)}"
    return Skipped(f"pareto-{price}", reason)


def _row(findings: Findings, setting: SettingFinding, metric: str) -> dict[str, Any] | None:
    cost, summary = cost_of(setting, metric), setting.metrics.get(metric)
    value = cost.value if cost is not None else summary.median if summary else None
    if setting.rate is None or value is None:
        return None
    unit = cost.unit if cost is not None else summary.unit if summary else ""
    return {
        "setting": setting.setting,
        "label": setting.label,
        "rate": setting.rate.value,
        "metric": metric,
        "value": value,
        "unit": unit,
        "role": _role(findings, setting),
        "rate_words": fmt.estimate_text(setting.rate),
        "value_words": fmt.number(value, unit),
    }


def _role(findings: Findings, setting: SettingFinding) -> str:
    advice = findings.recommendation
    if advice.choice is not None and advice.choice.chooses(setting):
        return "recommended"
    if any(choice.chooses(setting) for choice in advice.alternatives):
        return "alternative"
    if setting.setting == findings.baseline:
        return "baseline"
    return "on the Pareto front" if setting.setting in findings.pareto else "other"


def _place_names(rows: list[dict[str, Any]]) -> None:
    """Place the names of chosen settings on whichever side of their marks keeps them inside the picture."""
    middle = (min(row["value"] for row in rows) + max(row["value"] for row in rows)) / 2
    for row in rows:
        named = row["role"] in ("recommended", "alternative")
        row["name_side"] = ("left" if row["value"] > middle else "right") if named else None


def _missing_reason(findings: Findings, price: str) -> str:
    """Return, in parentheses, the first recorded reason why this metric was neither measured nor provided."""
    if price == "cost" and findings.costs_note:
        return f" ({findings.costs_note})"
    known = (setting.metrics.get(metric) for setting in findings.settings for metric in PRICES[price])
    return next((f" ({summary.reason})" for summary in known if summary and summary.reason), "")


def _draw(palette: Palette, *, title: str, rows: list[dict[str, Any]], unit: str) -> Chart:
    roles = [role for role in _ROLES if any(row["role"] == role for row in rows)]
    colours = [getattr(palette, _ROLES[role][0]) for role in roles]
    shape = alt.Shape("role:N", scale=alt.Scale(domain=roles, range=[_ROLES[role][1] for role in roles]))
    titles = {"label": "setting", "role": "role", "rate_words": "rate", "value_words": title}
    base = alt.Chart(ROWS).encode(
        x=_price_axis(title, rows),
        y=alt.Y("rate:Q", title=f"rate ({unit})", axis=SI_AXIS),
        color=alt.Color("role:N", scale=alt.Scale(domain=roles, range=colours)),
    )
    names = [
        base.transform_filter(f"datum.name_side == '{side}'")
        .mark_text(align="right" if side == "left" else "left", dx=-10 if side == "left" else 10, limit=220)
        .encode(text=alt.Text("label:N"))
        for side in ("left", "right")
        if any(row["name_side"] == side for row in rows)
    ]
    points = base.mark_point(filled=True, size=100).encode(shape=shape, tooltip=tooltip(titles))
    return alt.layer(points, *names).properties(height=320)


def _price_axis(title: str, rows: list[dict[str, Any]]) -> alt.X:
    """Return the horizontal axis. For bytes, ticks are at round numbers of mebibytes, as in the tables."""
    values, unit = [row["value"] for row in rows], str(rows[0]["unit"])
    scale = alt.Scale(zero=False, padding=24)
    if unit not in ("B", "bytes"):
        return alt.X("value:Q", title=f"{title} ({unit})", scale=scale, axis=SI_AXIS)
    ticks = round_ticks(min(values) / 2**20, max(values) / 2**20)
    axis = alt.Axis(values=[tick * 2**20 for tick in ticks], labelExpr="format(datum.value / 1048576, ',~r')")
    return alt.X("value:Q", title=f"{title} (MiB)", scale=scale, axis=axis)
