"""Rate against cost, energy or memory. Marks are those of the forest plot, and carry the names of their settings."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, Literal

import altair as alt

from accelsweep.analysis.costs import same_energy_scope
from accelsweep.metrics import MEMORY_METRICS
from accelsweep.records.findings import Findings, SettingFinding
from accelsweep.report import formatting as fmt
from accelsweep.report.figures.axes import round_ticks, tooltip, verdict_encodings
from accelsweep.report.figures.figure import SI_AXIS, Chart, DataRow, Figure, Layer, Palette, Skipped
from accelsweep.report.setting_table import ENERGY, MEMORY_TITLES, cost_of

COLUMNS = ("setting", "label", "rate", "metric", "value", "unit", "role")

PRICES = {
    "cost": ("usd_per_result", "usd_per_million_samples"),
    "energy": (ENERGY,),
    "memory": MEMORY_METRICS,
}
"""What the `pareto-NAME` figures plot the rate against: for each, its metrics in order of preference."""

_ROLES = ("recommended", "alternative", "baseline", "on the Pareto front", "other")
"""The roles of settings; names are placed in this order, as long as they fit."""

_HEIGHT = 320

PLOT_WIDTHS = {"side": 600, "narrow_side": 300}
"""The width in pixels for which names are placed: of a static picture, and of a phone. Wider plots have more room."""

_LETTER = 6.6
"""The width of a letter, in pixels; a little more than the mean, so that names do not touch."""

_MARK = 7
"""Half of the width and height that a mark takes, in pixels."""

_SIDES: Mapping[str, tuple[Literal["left", "center", "right"], int, int]] = {
    "right": ("left", 13, 0),
    "left": ("right", -13, 0),
    "above": ("center", 0, -13),
    "below": ("center", 0, 13),
    "above right": ("left", -6, -13),
    "above left": ("right", 6, -13),
    "below right": ("left", -6, 13),
    "below left": ("right", 6, 13),
}
"""Where a name may stand, in order of preference: its alignment and its distance from the mark, in pixels."""


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
            domains = {key: _domain(rows, key) for key in ("value", "rate")}
            for side, width in PLOT_WIDTHS.items():
                _place_names(rows, domains, side, width)
            title = MEMORY_TITLES.get(metric, price)
            unnamed = sum(row["side"] is None for row in rows)
            return Figure(
                name=f"pareto-{price}",
                alt=f"{fmt.count(len(rows), 'setting')} by rate and {title}.",
                rows=rows,
                columns=COLUMNS,
                draw=partial(_draw, title=title, rows=rows, domains=domains, unit=fmt.unit_word(findings.rate_unit)),
                note=f"There is no room for {fmt.count(unnamed, 'name')}: point at the mark." if unnamed else "",
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
        "verdict": setting.verdict.value,
        "role": _role(findings, setting),
        "off_front": setting.setting not in findings.pareto,
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


def _domain(rows: Sequence[DataRow], key: str) -> tuple[float, float]:
    """Return the ends of an axis with some room beyond the outermost marks; the rate begins at 0."""
    values = [float(row[key]) for row in rows]
    low, high = (0.0, max(values)) if key == "rate" else (min(values), max(values))
    room = 0.08 * ((high - low) or abs(high) or 1.0)
    return float(f"{low - (room if key == 'value' else 0.0):.6g}"), float(f"{high + room:.6g}")


_Box = tuple[float, float, float, float]
"""The left, right, top and bottom edges of a mark or a name, in pixels."""


def _place_names(
    rows: Sequence[dict[str, Any]], domains: Mapping[str, tuple[float, float]], key: str, width: int
) -> None:
    """Set each row's `key` to the side of its mark on which its name fits a plot of this width; None if none does."""

    def position(row: DataRow) -> tuple[float, float]:
        x, y = ((row[name] - low) / (high - low) for name, (low, high) in domains.items())
        return x * width, (1 - y) * _HEIGHT

    taken = defaultdict[int, list[_Box]](list)
    for row in rows:
        box = _mark_box(*position(row))
        taken[_band(box)].append(box)
    for row in sorted(rows, key=lambda row: _ROLES.index(row["role"])):
        mark = _mark_box(*position(row))
        boxes = {side: _name_box(*position(row), len(row["label"]), side) for side in _SIDES}
        inside = [side for side, box in boxes.items() if _fits(box, width)]
        fitting = [side for side in inside if not _overlaps(boxes[side], mark, taken)]
        if row["role"] == "recommended":  # its name is worth hiding marks for
            fitting += inside
        row[key] = next(iter(fitting), None)
        if row[key] is not None:
            taken[_band(boxes[row[key]])].append(boxes[row[key]])


def _mark_box(x: float, y: float) -> _Box:
    return x - _MARK, x + _MARK, y - _MARK, y + _MARK


def _name_box(x: float, y: float, letters: int, side: str) -> _Box:
    align, dx, dy = _SIDES[side]
    left = x + dx - {"left": 0.0, "center": 0.5, "right": 1.0}[align] * letters * _LETTER
    return left, left + letters * _LETTER, y + dy - _MARK, y + dy + _MARK


def _fits(box: _Box, width: int) -> bool:
    left, right, top, bottom = box
    return left >= 0 and right <= width and top >= 0 and bottom <= _HEIGHT


def _band(box: _Box) -> int:
    """Return the band of the plot in which the box begins: a little higher than a box, so that it ends in the next."""
    return int(box[2] // (2 * _MARK + 1))


def _overlaps(box: _Box, mark: _Box, taken: Mapping[int, Sequence[_Box]]) -> bool:
    """Return whether the box covers a part of one that is taken, by band, except by its own mark."""
    left, right, top, bottom = box
    return any(
        left < other[1] and other[0] < right and top < other[3] and other[2] < bottom and other != mark
        for band in (_band(box) - 1, _band(box), _band(box) + 1)
        for other in taken.get(band, ())
    )


def _missing_reason(findings: Findings, price: str) -> str:
    """Return, in parentheses, the first recorded reason why this metric was neither measured nor provided."""
    if price == "cost" and findings.costs_note:
        return f" ({findings.costs_note})"
    known = (setting.metrics.get(metric) for setting in findings.settings for metric in PRICES[price])
    return next((f" ({summary.reason})" for summary in known if summary and summary.reason), "")


def _draw(
    palette: Palette, *, title: str, rows: list[dict[str, Any]], domains: Mapping[str, tuple[float, float]], unit: str
) -> Chart:
    titles = {"label": "setting", "role": "role", "verdict": "verdict", "rate_words": "rate", "value_words": title}
    base = Layer().encode(
        x=_price_axis(title, rows, domains["value"]),
        y=alt.Y("rate:Q", title=f"rate ({unit})", axis=SI_AXIS, scale=_scale(domains["rate"])),
    )
    points = base.mark_point(filled=True, size=100).encode(
        **verdict_encodings((row["verdict"] for row in rows), palette),
        opacity=alt.condition("datum.off_front", alt.value(_PALE), alt.OpacityValue(1)),
        tooltip=tooltip(titles),
    )
    names = [
        base.transform_filter(f"datum.side == '{side}'")
        .mark_text(align=align, dx=dx, dy=dy)
        .encode(text=alt.Text("label:N"))
        for side, (align, dx, dy) in _SIDES.items()
        if any(side in (row["side"], row["narrow_side"]) for row in rows)
    ]
    ring = base.transform_filter("datum.role == 'recommended'").mark_point(filled=False, size=330, strokeWidth=1.5)
    rings = (
        [ring.encode(color=alt.ColorValue(palette.ink))] if any(row["role"] == "recommended" for row in rows) else []
    )
    return alt.layer(*rings, points, *names).properties(height=_HEIGHT)


_PALE = 0.4
"""The opacity of marks off the Pareto front."""


def _scale(domain: tuple[float, float]) -> alt.Scale:
    return alt.Scale(domain=list(domain), nice=False, zero=False)


def _price_axis(title: str, rows: list[dict[str, Any]], domain: tuple[float, float]) -> alt.X:
    """Return the horizontal axis. For bytes, ticks are at round numbers of mebibytes, as in the tables."""
    unit, scale = str(rows[0]["unit"]), _scale(domain)
    if unit not in ("B", "bytes"):
        return alt.X("value:Q", title=f"{title} ({unit})", scale=scale, axis=SI_AXIS)
    ticks = [tick * 2**20 for tick in round_ticks(*(end / 2**20 for end in domain))]
    ticks = [tick for tick in ticks if domain[0] <= tick <= domain[1]]
    axis = alt.Axis(values=ticks, labelExpr="format(datum.value / 1048576, ',~r')")
    return alt.X("value:Q", title=f"{title} (MiB)", scale=scale, axis=axis)
