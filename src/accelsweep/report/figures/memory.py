"""Memory by batch size, one line per combination of the other axes, with the device's limit if known."""

from __future__ import annotations

from typing import Any

import altair as alt

from accelsweep.metrics import MEMORY_METRICS
from accelsweep.records.findings import Findings, SettingFinding
from accelsweep.report import formatting as fmt
from accelsweep.report.figures.axes import (
    BATCH_AXIS,
    linear_domain,
    lines_note,
    main_outcome,
    round_ticks,
    series_encodings,
    series_of,
    tooltip,
)
from accelsweep.report.figures.figure import MAX_SERIES, Chart, Figure, Layer, Palette, Skipped, has_values
from accelsweep.report.setting_table import MEMORY_TITLES
from accelsweep.results import Outcome

COLUMNS = ("setting", "series", "batch_size", "metric", "bytes", "low", "high", "limit", "outcome")

_MEBI = 2**20


def memory_figure(findings: Findings) -> Figure | Skipped:
    """Return a chart of each setting's memory by batch size, or the reason why it was not drawn."""
    if len({setting.axes.get("batch_size") for setting in findings.settings}) < 2:
        return Skipped("memory", "only one value of batch_size was planned")
    settings = [setting for setting in findings.settings if "batch_size" in setting.axes]
    for metric in MEMORY_METRICS:
        summaries = [setting.metrics[metric] for setting in settings if metric in setting.metrics]
        if sum(summary.median is not None for summary in summaries) > 1:
            return _figure([_row(findings, setting, metric) for setting in settings], metric)
    return Skipped("memory", "fewer than two settings have a value of the same memory metric")


def _row(findings: Findings, setting: SettingFinding, metric: str) -> dict[str, Any]:
    summary = setting.metrics.get(metric)
    used = summary.median if summary else None
    outcome = main_outcome(setting)
    return {
        "setting": setting.setting,
        "series": series_of(setting, findings),
        "batch_size": setting.axes["batch_size"],
        "metric": metric,
        "bytes": used,
        "low": summary.minimum if summary else None,
        "high": summary.maximum if summary else None,
        "limit": _device_memory(setting),
        "outcome": outcome.value,
        "ended": outcome is Outcome.out_of_memory,
        "words": fmt.number(used, "B") if used is not None else fmt.outcome_words(outcome),
        "share": setting.memory_description,
    }


def _device_memory(setting: SettingFinding) -> float | None:
    """Return the device's memory in bytes, computed from the share that the setting used; None if unknown."""
    medians = (setting.metrics[name].median for name in MEMORY_METRICS if name in setting.metrics)
    used = next((value for value in medians if value is not None), None)
    return float(f"{used / setting.memory_share:.3g}") if used and setting.memory_share else None


def _figure(rows: list[dict[str, Any]], metric: str) -> Figure:
    measured = list(dict.fromkeys(row["series"] for row in rows if row["bytes"] is not None))
    names = measured[:MAX_SERIES]
    rows = [{**row, "shown": row["series"] in names} for row in rows]
    drawn = [row for row in rows if row["shown"]]
    domain = linear_domain(drawn, "bytes", zero=True)
    limits = sorted({row["limit"] for row in drawn if row["limit"] is not None})
    if limits and limits[0] < 2 * domain[1]:
        domain = (domain[0], max(domain[1], 1.04 * limits[0]))
    notes = [lines_note(len(names), len(measured), "first")]
    if not limits:
        notes.append("The device's memory is unknown.")
    elif beyond := [fmt.number(limit, "B") for limit in limits if limit > domain[1]]:
        notes.append(f"The limit of {' and '.join(beyond)} is far above this axis.")
    return Figure(
        name="memory",
        alt=f"{MEMORY_TITLES[metric].capitalize()} against batch size in {fmt.count(len(names), 'line')}.",
        rows=rows,
        columns=COLUMNS,
        draw=lambda palette: _draw(palette, drawn, domain, [limit for limit in limits if limit <= domain[1]], metric),
        note=" ".join(filter(None, notes)),
    )


def _draw(
    palette: Palette, rows: list[dict[str, Any]], domain: tuple[float, float], limits: list[float], metric: str
) -> Chart:
    names = list(dict.fromkeys(row["series"] for row in rows))
    ticks = [tick * _MEBI for tick in round_ticks(domain[0] / _MEBI, domain[1] / _MEBI) if tick * _MEBI <= domain[1]]
    scale = alt.Scale(domain=list(domain), nice=False)
    axis = alt.Axis(values=ticks, labelExpr=f"format(datum.value / {_MEBI}, ',~r')")
    y = alt.Y("bytes:Q", title=f"{MEMORY_TITLES[metric]} (MiB)", scale=scale, axis=axis)
    titles = {"series": "setting", "batch_size": "batch size", "words": "memory", "share": "share"}
    encodings = series_encodings("series", names, palette)
    base = Layer().transform_filter("datum.shown")
    base = base.encode(x=BATCH_AXIS, color=encodings["color"], tooltip=tooltip(titles))
    measured = base.transform_filter("isValid(datum.bytes)")
    ended = base.transform_filter("datum.ended").mark_point(shape="cross", size=110, angle=45, filled=True)
    return alt.layer(
        *(_limit_line(palette, limit, scale) for limit in limits),
        measured.mark_line().encode(y=y),
        measured.mark_point(filled=True, size=70).encode(y=y, shape=encodings["shape"]),
        *([ended.encode(y=alt.YValue(8))] if has_values(rows, "ended") else []),
    ).properties(height=280)


def _limit_line(palette: Palette, limit: float, scale: alt.Scale) -> Chart:
    base = Layer(alt.InlineData(values=[{}])).encode(y=alt.YDatum(limit, type="quantitative", scale=scale))
    line = base.mark_rule(color=palette.muted, strokeDash=[4, 4], aria=False)
    text = base.mark_text(align="left", dy=-7, color=palette.muted, text=f"limit: {fmt.number(limit, 'B')}")
    return alt.layer(line, text.encode(x=alt.XValue(4)))
