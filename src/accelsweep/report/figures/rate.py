"""The rate by batch size: a heat map by precision, and a line chart that marks failed settings."""

from __future__ import annotations

from typing import Any

import altair as alt

from accelsweep.records.findings import Findings
from accelsweep.report import formatting as fmt
from accelsweep.report.figures.axes import (
    BATCH_AXIS,
    arrows,
    clipped,
    interval_fields,
    linear_domain,
    lines_note,
    main_outcome,
    series_encodings,
    series_of,
)
from accelsweep.report.figures.figure import MAX_SERIES, SI_AXIS, Chart, Figure, Layer, Palette, Skipped, has_values
from accelsweep.results import Outcome

COLUMNS = ("setting", "series", "batch_size", "rate", "low", "high", "confidence", "count", "outcome", "knee")
MAX_LINES = 40
"""Maximum number of rows in a heat map, chosen to fit a screen; the table lists all settings."""

_UNTRIED = (Outcome.unsupported, Outcome.not_run)
"""Outcomes of settings that were never measured; a line of only such settings is not drawn."""

_FAILED = "!isValid(datum.rate)"
_MEASURED = "isValid(datum.rate)"
_TOOLTIP = [
    alt.Tooltip("series:N", title="setting"),
    alt.Tooltip("batch_size:O", title="batch size"),
    alt.Tooltip("words:N", title="rate"),
]


def heatmap_figure(findings: Findings) -> Figure | Skipped:
    """Return a heat map of rates by batch size and precision, or the reason why it was not drawn."""
    missing = [axis for axis in ("batch_size", "precision") if _value_count(findings, axis) < 2]
    if missing:
        return Skipped("heatmap", f"only one value of {' and '.join(missing)} was planned, so there is no grid")
    all_rows = _rows(findings)
    tried = list(dict.fromkeys(row["series"] for row in all_rows if row["outcome"] not in _UNTRIED))
    rows = [row for row in all_rows if row["series"] in tried[:MAX_LINES]]
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
        note=f"The first {MAX_LINES} of {len(tried)} measured lines." if len(tried) > MAX_LINES else "",
    )


def throughput_figure(findings: Findings) -> Figure | Skipped:
    """Return a chart of rate by batch size, one line per combination of other axes, or why it was not drawn."""
    if _value_count(findings, "batch_size") < 2:
        return Skipped("throughput", "only one value of batch_size was planned")
    rows = _rows(findings)
    best: dict[str, float] = {}
    for row in rows:
        if row["rate"] is not None:
            best[row["series"]] = max(row["rate"], best.get(row["series"], 0.0))
    if not best:
        return Skipped("throughput", "no setting has a rate")
    fastest = sorted(best, key=lambda name: -best[name])[:MAX_SERIES]
    domain = linear_domain([row for row in rows if row["series"] in fastest], "rate", zero=True)
    rows = [{**clipped(row, domain), "shown": row["series"] in fastest} for row in rows]
    failed = sum(row["rate"] is None for row in rows if row["shown"])
    return Figure(
        name="throughput",
        alt=f"Rate against batch size in {fmt.count(len(fastest), 'line')}, "
        f"with {fmt.count(failed, 'setting')} without a rate.",
        rows=rows,
        columns=COLUMNS,
        draw=lambda palette: _draw_throughput(palette, rows, domain, fmt.unit_word(findings.rate_unit)),
        note=lines_note(len(fastest), len(best), "fastest"),
    )


def _value_count(findings: Findings, axis: str) -> int:
    return len({str(setting.axes[axis]) for setting in findings.settings if axis in setting.axes})


def _rows(findings: Findings) -> list[dict[str, Any]]:
    """Return a row for each setting with a batch size. The largest measured batch size is never the knee."""
    sizes = {setting.setting: setting.axes.get("batch_size") for setting in findings.settings}
    knees = {
        (curve.knee, curve.hardware)
        for curve in findings.batch_curves
        if curve.knee is not None and sizes.get(curve.knee) != curve.largest_measured
    }
    rows = []
    for setting in findings.settings:
        if "batch_size" not in setting.axes:
            continue
        rate, outcome = setting.rate, main_outcome(setting)
        reason = setting.reasons[0] if setting.reasons else setting.verdict_reason
        rows.append(
            {
                "setting": setting.setting,
                "series": series_of(setting, findings),
                "batch_size": setting.axes["batch_size"],
                "rate": rate.value if rate else None,
                **interval_fields(rate),
                "count": rate.count if rate else 0,
                "outcome": outcome.value,
                "knee": (setting.setting, setting.hardware) in knees,
                "short": fmt.number(rate.value)
                if rate
                else "no rate"
                if setting.measured
                else fmt.outcome_words(outcome),
                "words": fmt.estimate_text(rate, f"{fmt.outcome_words(outcome)}: {reason}"),
            }
        )
    return rows


def _draw_heatmap(palette: Palette, rows: list[dict[str, Any]]) -> Chart:
    rates = [row["rate"] for row in rows if row["rate"] is not None]
    lines = list(dict.fromkeys(row["series"] for row in rows))
    turn = min(rates) + palette.ramp_turn * (max(rates) - min(rates))
    x = BATCH_AXIS.copy().scale(paddingInner=0)
    base = Layer().encode(x=x, y=alt.Y("series:N", sort=lines, title=None), tooltip=_TOOLTIP)
    measured, failed = base.transform_filter(_MEASURED), base.transform_filter(_FAILED)
    scale = alt.Scale(range=list(palette.ramp), zero=min(rates) == max(rates))
    text_colour = alt.condition(
        f"datum.rate > {turn!r}", alt.value(palette.on_ramp[1]), alt.ColorValue(palette.on_ramp[0])
    )
    tiles = [failed.mark_rect(fill=palette.band, stroke=palette.page, strokeWidth=3, cornerRadius=4)]
    reasons = [failed.mark_text(fontSize=12, color=palette.muted).encode(text=alt.Text("short:N"))]
    if len(rates) == len(rows):  # a layer without a mark has no text for screen readers
        tiles, reasons = [], []
    return alt.layer(
        *tiles,
        measured.mark_rect(stroke=palette.page, strokeWidth=3, cornerRadius=4).encode(
            color=alt.Color("rate:Q", scale=scale, legend=None)
        ),
        measured.mark_text(fontSize=13).encode(text=alt.Text("short:N"), color=text_colour),
        *reasons,
    ).properties(height=44 * len(lines), usermeta={"tiles": len(lines)})


def _draw_throughput(palette: Palette, rows: list[dict[str, Any]], domain: tuple[float, float], unit: str) -> Chart:
    shown = [row for row in rows if row["shown"]]
    names = list(dict.fromkeys(row["series"] for row in shown))
    scale = alt.Scale(domain=list(domain), nice=False)
    y = alt.Y("rate:Q", title=f"rate ({unit})", axis=SI_AXIS, scale=scale)
    encodings = series_encodings("series", names, palette)
    base = Layer().transform_filter("datum.shown")
    base = base.encode(x=BATCH_AXIS, color=encodings["color"], tooltip=_TOOLTIP)
    measured = base.transform_filter(_MEASURED)
    failed = base.transform_filter(_FAILED).mark_point(shape="cross", size=110, angle=45, filled=True)
    intervals = measured.mark_rule(strokeWidth=2).encode(y=alt.Y("from:Q", scale=scale), y2=alt.Y2("to:Q"))
    knees = measured.transform_filter("datum.knee").mark_point(filled=False, size=260, strokeWidth=1.5).encode(y=y)
    return alt.layer(
        measured.mark_line().encode(y=y),
        *([intervals] if has_values(shown, "low") else []),
        *arrows(measured, shown, scale, vertical=True),
        measured.mark_point(filled=True, size=70).encode(y=y, shape=encodings["shape"]),
        *([knees] if has_values(shown, "knee") else []),
        *(
            [failed.encode(y=alt.YDatum(0), yOffset=alt.YOffsetValue(-8))]
            if any(row["rate"] is None for row in shown)
            else []
        ),
    ).properties(height=320)
