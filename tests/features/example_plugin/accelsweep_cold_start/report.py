"""The metric, its table and its figure."""

import altair as alt

from accelsweep.metrics import MetricInfo
from accelsweep.records.findings import Findings, SettingFinding
from accelsweep.report.figures.figure import Chart, Figure, Layer, Palette, Skipped
from accelsweep.report.formatting import summary
from accelsweep.report.table_model import Column, Entry, ReportTable

METRICS = {
    "cold_start_ratio": MetricInfo("ratio", "Time of the first answer over the mean time of an answer.", "Cold start"),
}


def measured(findings: Findings) -> list[SettingFinding]:
    """Return the settings that have the metric."""
    return [setting for setting in findings.settings if "cold_start_ratio" in setting.metrics]


def tables(findings: Findings) -> list[ReportTable]:
    """Return the table with a row for each setting; none in sweeps of other tasks."""
    settings = measured(findings)
    if not settings:
        return []
    table = ReportTable(
        name="cold_start",
        title="Cold start",
        caption="Medians over the repeats.",
        columns=(Column("Setting"), Column("First answer over a usual one", numeric=True)),
        rows=tuple((Entry(setting.label), Entry(summary(setting.metrics["cold_start_ratio"]))) for setting in settings),
        data=[
            {"setting": setting.setting, "ratio": setting.metrics["cold_start_ratio"].median} for setting in settings
        ],
        empty="No first answer was timed.",
    )
    return [table]


def figure(findings: Findings) -> Figure | Skipped:
    """Return a bar for each setting, or why there is nothing to draw."""
    rows = [
        {"label": setting.label, "ratio": setting.metrics["cold_start_ratio"].median} for setting in measured(findings)
    ]
    if not rows:
        return Skipped("cold_start", "the task is not cold_start")

    def draw(palette: Palette) -> Chart:
        bars = Layer().mark_bar(color=palette.series[0])
        return alt.layer(bars.encode(x=alt.X("ratio:Q", title="ratio"), y=alt.Y("label:N", title=None)))

    return Figure("cold_start", "Bars of the first answer's time over a usual one's.", rows, ("label", "ratio"), draw)
