"""The metric, its table and its figure."""

import altair as alt

from accelsweep.metrics import Meaning
from accelsweep.records.findings import CellFinding, Findings
from accelsweep.report.figures.figure import ROWS, Chart, Figure, Palette, Skipped
from accelsweep.report.table_model import Column, Entry, ReportTable
from accelsweep.report.units import summary

METRICS = {
    "cold_start_ratio": Meaning("ratio", "Time of the first answer over the mean time of an answer.", "Cold start"),
}


def measured(findings: Findings) -> list[CellFinding]:
    """Return the settings that have the metric."""
    return [cell for cell in findings.cells if "cold_start_ratio" in cell.metrics]


def tables(findings: Findings) -> list[ReportTable]:
    """Return the table with a row for each setting; none in sweeps of other tasks."""
    cells = measured(findings)
    if not cells:
        return []
    table = ReportTable(
        name="cold_start",
        title="Cold start",
        caption="Medians over the repeats.",
        columns=(Column("Setting"), Column("First answer over a usual one", numeric=True)),
        rows=tuple((Entry(cell.label), Entry(summary(cell.metrics["cold_start_ratio"]))) for cell in cells),
        data=[{"cell": cell.cell, "ratio": cell.metrics["cold_start_ratio"].median} for cell in cells],
        empty="No first answer was timed.",
    )
    return [table]


def figure(findings: Findings) -> Figure | Skipped:
    """Return a bar for each setting, or why there is nothing to draw."""
    rows = [{"label": cell.label, "ratio": cell.metrics["cold_start_ratio"].median} for cell in measured(findings)]
    if not rows:
        return Skipped("cold_start", "the task is not cold_start")

    def draw(palette: Palette) -> Chart:
        bars = alt.Chart(ROWS).mark_bar(color=palette.accent)
        return alt.layer(bars.encode(x=alt.X("ratio:Q", title="ratio"), y=alt.Y("label:N", title=None)))

    return Figure("cold_start", "Bars of the first answer's time over a usual one's.", rows, ("label", "ratio"), draw)
