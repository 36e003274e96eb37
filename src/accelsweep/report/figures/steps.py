"""Steps over time: the raw step times of a few runs, the ones a reader is most likely to doubt."""

from __future__ import annotations

import math
from typing import Any

import altair as alt
import pyarrow as pa
import pyarrow.parquet as pq

from accelsweep.base.errors import DamagedFile
from accelsweep.core.findings import Findings, RunPoint
from accelsweep.core.outcome import Outcome
from accelsweep.core.record import steps_damage
from accelsweep.report import format as fmt
from accelsweep.report.figures.figure import ROWS, Chart, Figure, Row, Skipped
from accelsweep.report.figures.theme import Palette
from accelsweep.report.place import RunsPlace, own_name
from accelsweep.state.records import read_record_at

COLUMNS = ("run", "cell", "rank", "step", "phase", "step_seconds")
MOST_RUNS = 12
MOST_STEPS = 300
"""Steps shown of one run; of a longer run every second, third, ... step is shown, and the note says so."""


def steps_figure(findings: Findings, folder: RunsPlace) -> Figure | Skipped:
    """Return the step times of the chosen runs, or why there are none. A file that is damaged is left out."""
    rows: list[Row] = []
    thinned = False
    for label, point in chosen_runs(findings):
        steps = _read(folder, point.run)
        stride = max(1, math.ceil(len({step["step"] for step in steps}) / MOST_STEPS))
        thinned = thinned or stride > 1
        title = _title(label, point, bool(findings.merged))
        rows += [_row(label, title, point, step) for step in steps if step["step"] % stride == 0]
    if not rows:
        return Skipped("steps", "no steps.parquet of a measured run could be read")
    titles = list(dict.fromkeys(str(row["title"]) for row in rows))
    shown = f"Of {fmt.count(_measured(findings), 'measured run')}, {len(titles)} can be chosen here"
    return Figure(
        name="steps",
        alt=f"Step times of one run at a time, {fmt.count(len(titles), 'run')} to choose from.",
        rows=rows,
        columns=COLUMNS,
        draw=lambda palette: _draw(palette, titles),
        note=f"{shown}; of long runs not every step is drawn." if thinned else f"{shown}.",
    )


def chosen_runs(findings: Findings) -> list[tuple[str, RunPoint]]:
    """Return (cell label, run) of the runs worth a look: recommended, baseline, alternatives, doubted, the rest."""
    advice = findings.recommendation
    first = [advice.choice.cell if advice.choice else None, findings.baseline, *(c.cell for c in advice.alternatives)]
    rank = {cell: position for position, cell in reversed(list(enumerate(first)))}
    measured = [
        (rank.get(cell.cell, len(first)), not point.doubts, point.repeat, position, cell.label, point)
        for position, cell in enumerate(findings.cells)
        for point in cell.runs
        if point.outcome is Outcome.measured
    ]
    ordered = sorted(measured, key=lambda entry: (entry[2] > 0 and entry[1], *entry[:4]))
    return [(entry[4], entry[5]) for entry in ordered[:MOST_RUNS]]


def _measured(findings: Findings) -> int:
    return findings.outcomes.get(Outcome.measured, 0)


def _read(folder: RunsPlace, run: str) -> list[dict[str, Any]]:
    path, record = folder.steps(run), folder.record(run)
    try:
        if record.exists() and steps_damage(read_record_at(record, own_name(run)), path) is not None:
            return []
        table = pq.read_table(path, columns=["rank", "step", "phase", "step_seconds"])
    except (OSError, pa.ArrowInvalid, KeyError, DamagedFile):
        return []
    return [row for row in table.to_pylist() if row["step_seconds"] is not None]


def _title(label: str, point: RunPoint, merged: bool) -> str:
    """Return the name by which a run is chosen; where sweeps are merged, each has its own repeat 0 of a cell."""
    sweep = f"{point.run.partition('/')[0]}, " if merged else ""
    return f"{label} ({sweep}repeat {point.repeat})"


def _row(label: str, title: str, point: RunPoint, step: dict[str, Any]) -> dict[str, Any]:
    return {
        "run": point.run,
        "cell": label,
        "title": title,
        "rank": step["rank"],
        "step": step["step"],
        "phase": step["phase"],
        "step_seconds": float(f"{step['step_seconds']:.5g}"),
    }


def _draw(palette: Palette, titles: list[str]) -> Chart:
    chosen = alt.param(name="run_title", value=titles[0], bind=alt.binding_select(options=titles, name="Run "))
    tooltip = [
        alt.Tooltip("step:Q", title="step"),
        alt.Tooltip("step_seconds:Q", title="seconds"),
        alt.Tooltip("rank:N", title="rank"),
        alt.Tooltip("phase:N", title="phase"),
    ]
    base = alt.Chart(ROWS).transform_filter("datum.title == run_title")
    marks = base.mark_point(filled=True, size=22).encode(
        x=alt.X("step:Q", title="step", axis=alt.Axis(grid=False, tickMinStep=1, tickCount=8)),
        y=alt.Y(
            "step_seconds:Q",
            title="time per step",
            axis=alt.Axis(labelExpr="format(datum.value, '~s') + 's'", tickCount=6),
        ),
        color=alt.Color("rank:N", scale=alt.Scale(range=list(palette.series)), legend=alt.Legend(title="rank")),
        shape=alt.condition("datum.phase == 'warmup'", alt.value("cross"), alt.value("circle")),
        tooltip=tooltip,
    )
    return alt.layer(marks).add_params(chosen).properties(height=280)
