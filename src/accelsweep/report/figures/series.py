"""What the machine did over time: readings of the recommended setting and the baseline, one band per quantity."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any

import altair as alt

from accelsweep.metrics import quantity_of
from accelsweep.records.findings import Findings, RunPoint, SettingFinding
from accelsweep.records.layout import SERIES_FILE, RunsPlace
from accelsweep.report import formatting as fmt
from accelsweep.report.figures.axes import series_encodings, tooltip
from accelsweep.report.figures.figure import Chart, DataRow, Figure, Layer, Palette, Skipped
from accelsweep.report.figures.steps import BAND_PIXELS
from accelsweep.report.setting_table import picture_of
from accelsweep.results import Outcome

COLUMNS = ("run", "setting", "quantity", "seconds", "phase", "value")

MAX_POINTS = 100
"""Maximum number of points to draw per run and quantity; consecutive readings of longer runs are averaged."""

_QUANTITIES: Mapping[str, tuple[str, str]] = {
    "gpu_utilisation": ("utilisation", "1"),
    "gpu_power_watts": ("power", "W"),
    "gpu_sm_mhz": ("clock", "MHz"),
    "gpu_memory_bytes": ("device memory", "B"),
    "gpu_celsius": ("temperature in Celsius", ""),
    "rank_cpu_cores": ("cores of a rank", ""),
    "host_cpu_cores": ("cores of the machine", ""),
    "package_power_watts": ("CPU power", "W"),
    "rank_rss_bytes": ("memory of a rank", "B"),
    "host_disk_bytes_per_second": ("disks", "B/s"),
}
"""Quantities in the order in which they are drawn -> their names and units."""

_LIMITS: Mapping[str, str] = {"gpu_power_limit_watts": "gpu_power_watts"}
"""Limits, drawn as dashed lines -> the quantities in whose bands they are."""

MAX_BANDS = 6


MAX_PICTURES = 40
"""Maximum number of settings with a picture of their own beside the page."""


def series_figure(findings: Findings, folder: RunsPlace) -> Figure | Skipped:
    """Return a chart of what was sampled in one run of the recommended setting and of the baseline, or why not."""
    figure = _figure(_chosen(findings), folder)
    return figure or Skipped("series", f"no {SERIES_FILE} of the recommended setting or of the baseline could be read")


def setting_series(findings: Findings, folder: RunsPlace) -> dict[str, Figure]:
    """Return such a chart of each sampled setting, by the name of its files beside the page."""
    sampled = [setting for setting in findings.settings if picture_of(setting)][:MAX_PICTURES]
    figures = {picture_of(setting): _figure([setting], folder) for setting in sampled}
    return {name: figure for name, figure in figures.items() if figure is not None}


def _figure(settings: Iterable[SettingFinding], folder: RunsPlace) -> Figure | None:
    """Return a chart of one run of each setting; None if nothing can be read."""
    runs = list(_runs(settings))
    rows: list[DataRow] = []
    for setting, point in runs:
        rows += _rows(setting, point, folder.series(str(point.run)))
    if not rows:
        return None
    present = {row["quantity"] for row in rows}
    bands = [name for name in _QUANTITIES if name in present][:MAX_BANDS]
    values: dict[str, list[float]] = {}
    for row in rows:
        values.setdefault(_LIMITS.get(row["quantity"], row["quantity"]), []).append(row["value"])
    tops = {name: max(values[name]) or 1.0 for name in bands}
    tops |= dict.fromkeys(tops.keys() & {"gpu_utilisation"}, 1.0)
    drawn = [
        {**row, "band": _band(drawn_as, tops), "share": row["value"] / tops[drawn_as], "limit": drawn_as != quantity}
        for row in rows
        if (drawn_as := _LIMITS.get(quantity := str(row["quantity"]), quantity)) in tops
    ]
    labels = list(dict.fromkeys(str(row["setting"]) for row in drawn))
    thinned = f"Readings of long runs are averaged to {MAX_POINTS} points."
    return Figure(
        name="series",
        alt=f"{fmt.count(len(bands), 'kind')} of readings over time in {fmt.count(len(labels), 'setting')}.",
        rows=drawn,
        columns=COLUMNS,
        draw=lambda palette: _draw(palette, [_band(name, tops) for name in bands], labels, str(drawn[0]["run"])),
        note=" ".join(filter(None, (*(meaning(setting) for setting, _ in runs), thinned))),
    )


def _chosen(findings: Findings) -> Iterable[SettingFinding]:
    """Return the recommended setting and the baseline."""
    choice = findings.recommendation.choice
    chosen = [setting for setting in findings.settings if choice is not None and choice.chooses(setting)]
    chosen += [setting for setting in findings.settings if setting.setting == findings.baseline]
    return {setting.label: setting for setting in chosen}.values()


def _runs(settings: Iterable[SettingFinding]) -> Iterator[tuple[SettingFinding, RunPoint]]:
    """Yield each setting with its first measured run, preferably without doubts."""
    for setting in settings:
        if runs := [point for point in setting.runs if point.outcome is Outcome.measured]:
            yield setting, min(runs, key=lambda point: (bool(point.doubts), point.repeat))


def _rows(setting: SettingFinding, point: RunPoint, path: Path) -> list[DataRow]:
    """Return the readings of a run, the mean of its ranks or devices; empty if the table is missing or damaged."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        table: list[dict[str, Any]] = pq.ParquetFile(path).read().to_pylist()  # `read_table` would import pandas
    except (OSError, pa.ArrowException):
        return []
    if not table or not {"seconds", "phase"} <= table[0].keys():
        return []
    nodes = max(1, sum(column.startswith("host") and column.endswith("_memory_bytes") for column in table[0]))
    points = max(1, min(MAX_POINTS, len(table) // nodes))
    edges = [round(number * len(table) / points) for number in range(points + 1)]
    rows: list[DataRow] = []
    for begin, end in pairwise(edges):
        values: dict[str, list[float]] = {}
        for column, value in (item for reading in table[begin:end] for item in reading.items()):
            if column not in ("seconds", "unix_seconds", "phase") and value is not None:
                values.setdefault(quantity_of(column), []).append(value)
        rows += [
            {
                "run": point.run,
                "setting": setting.label,
                "quantity": quantity,
                "seconds": float(f"{table[begin]['seconds']:.4g}"),
                "until": float(f"{table[min(end, len(table) - 1)]['seconds']:.4g}"),
                "phase": table[begin]["phase"],
                "value": float(f"{sum(found) / len(found):.4g}"),
            }
            for quantity, found in values.items()
            if quantity in _QUANTITIES or quantity in _LIMITS
        ]
    return rows


def _band(quantity: str, tops: Mapping[str, float]) -> str:
    name, unit = _QUANTITIES[quantity]
    top = fmt.share(tops[quantity]) if unit == "1" else fmt.number(tops[quantity], unit)
    return f"{name}, to {top}"


def meaning(setting: SettingFinding) -> str:
    """Say in a sentence what the readings in the window mean; empty if nothing was read."""
    mean = {name: metric.median for name, metric in setting.metrics.items() if name.endswith("_mean")}
    parts = []
    if (busy := mean.get("gpu_utilisation_mean")) is not None:
        waits = setting.bottleneck is not None and setting.bottleneck.verdict.startswith("input-bound")
        why = "; the step is input-bound" if waits else ""
        parts.append(f"its devices were idle {fmt.share(1 - busy)} of the window{why}")
    for name, what in (("gpu_power_capped_mean", "at their power limit"), ("gpu_throttled_mean", "throttled")):
        if share := mean.get(name):
            parts.append(f"they were {what} for {fmt.share(share)} of it")
    ranks, host = mean.get("rank_cpu_cores_mean"), mean.get("host_cpu_cores_mean")
    if ranks is not None and host is not None:
        whole_process = "process_cpu_seconds" in setting.metrics
        who, apart = ("the command", "") if whole_process else ("each rank", ", without loader workers")
        parts.append(f"{who} used {ranks:.2g} cores{apart}; the whole machine used {host:.2g}")
    return f"{setting.label}: {'; '.join(parts)}." if parts else ""


_NAMED_SHARE = 0.2
"""Phases that are shorter than this share of the run have no room for a name."""

_PHASE_NAMES = "{warmup: 'warm-up', window: 'window', probe: 'probe', quality: 'quality'}[datum.phase]"


def _draw(palette: Palette, bands: list[str], labels: list[str], first_run: str) -> Chart:
    scale = alt.Scale(domain=[0, 1], nice=False, reverse=True)
    lines = (
        Layer()
        .mark_line(strokeWidth=1.5)
        .encode(
            x=alt.X("seconds:Q", title="seconds since the window opened", axis=alt.Axis(grid=False, tickCount=8)),
            y=alt.Y("band:N", sort=bands, title=None, scale=alt.Scale(paddingInner=0.25, paddingOuter=0.35)),
            yOffset=alt.YOffset("share:Q", scale=scale),
            color=series_encodings("setting", labels, palette)["color"],
            detail=[alt.Detail("run:N"), alt.Detail("band:N"), alt.Detail("limit:N")],
            strokeDash=alt.condition("datum.limit", alt.value([4, 3]), alt.StrokeDashValue([1, 0])),
            order=alt.Order("seconds:Q"),
            tooltip=tooltip({"setting": "setting", "band": "quantity", "seconds": "seconds", "value": "value"}),
        )
    )
    phases = (
        Layer()
        .transform_filter("datum.phase != null")
        .transform_aggregate(start="min(seconds)", end="max(until)", groupby=["run", "phase"])
        .encode(x=alt.X("start:Q"))
    )
    shaded = phases.mark_rect(color=palette.band).encode(
        x2=alt.X2("end:Q"), opacity=alt.condition("datum.phase == 'window'", alt.value(0.8), alt.OpacityValue(0.4))
    )
    names = (
        phases.transform_filter(alt.datum.run == first_run)
        .transform_calculate(name=_PHASE_NAMES, seconds="datum.end - datum.start")
        .transform_joinaggregate(total="sum(seconds)")
        .transform_filter(f"datum.seconds > {_NAMED_SHARE} * datum.total")
        .mark_text(align="left", baseline="bottom", dx=4, dy=-2, color=palette.muted)
        .encode(y=alt.YValue("height"), text=alt.Text("name:N"))
    )
    return alt.layer(shaded, names, lines).properties(height=BAND_PIXELS * len(bands), usermeta={"bands": len(bands)})
