"""Steps over time: the raw step times of several runs at once, the ones a reader is most likely to doubt."""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import median
from typing import Any

import altair as alt

from accelsweep.errors import DamagedFile
from accelsweep.records.findings import Findings, RunPoint
from accelsweep.records.layout import STEPS_FILE, RunsPlace
from accelsweep.records.plan import MergedName
from accelsweep.records.run_files import read_steps
from accelsweep.records.run_record import Outcome
from accelsweep.report import units as fmt
from accelsweep.report.figures.figure import ROWS, Chart, DataRow, Figure, Palette, Skipped

ALL_RUNS = "all"
"""The first entry of the list of runs."""

COLUMNS = ("run", "cell", "rank", "step", "phase", "step_seconds")
MOST_RUNS = 12
MOST_SETTINGS = 6
"""More bands than that fill a screen."""

BAND_REACH = 10.0
"""A band holds this many times the median step of the slowest run at most; a longer step is an arrow at its end."""

BAND_PIXELS = 64
"""The height of one setting's band."""
MOST_DRAWN_STEPS = 300
"""Steps shown of one run; of a longer run every second, third, ... step is shown, and the note says so."""


def steps_figure(findings: Findings, folder: RunsPlace) -> Figure | Skipped:
    """Return the step times of the chosen runs, or why there are none. A file that is damaged is left out."""
    rows: list[DataRow] = []
    thinned = False
    for label, point in _told_apart(chosen_runs(findings)):
        steps = _read(folder, point.run)
        stride = max(1, math.ceil(len({step["step"] for step in steps}) / MOST_DRAWN_STEPS))
        thinned = thinned or stride > 1
        title = _title(label, point, bool(findings.merged))
        rows += [_row(label, title, point, step) for step in steps if step["step"] % stride == 0]
    if not rows:
        return Skipped("steps", f"no {STEPS_FILE} of a measured run could be read")
    titles = list(dict.fromkeys(str(row["title"]) for row in rows))
    labels = list(dict.fromkeys(str(row["cell"]) for row in rows))
    domain = _domain(rows)
    shown = f"Of {fmt.count(_measured(findings), 'measured run')}, {len(titles)} are drawn"
    reach = f"Each band reaches from {fmt.number(domain[0], 's')} to {fmt.number(domain[1], 's')}."
    return Figure(
        name="steps",
        alt=f"Step times of {fmt.count(len(titles), 'run')} of {fmt.count(len(labels), 'setting')}.",
        rows=rows,
        columns=COLUMNS,
        draw=lambda palette: _draw(palette, rows, titles, labels),
        note=f"{reach} {shown}; of long runs not every step is drawn." if thinned else f"{reach} {shown}.",
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


def _told_apart(runs: list[tuple[str, RunPoint]]) -> list[tuple[str, RunPoint]]:
    """Return the runs of the first settings, as many as there are colours."""
    kept = list(dict.fromkeys(label for label, _ in runs))[:MOST_SETTINGS]
    return [(label, point) for label, point in runs if label in kept]


def _measured(findings: Findings) -> int:
    return findings.outcomes.get(Outcome.measured, 0)


def _read(folder: RunsPlace, run: str) -> list[dict[str, Any]]:
    columns = ["rank", "step", "phase", "step_seconds"]
    try:
        table = read_steps(folder.steps(run), folder.record(run), MergedName.of(run).name, columns)
    except (FileNotFoundError, DamagedFile):
        return []
    return [row for row in table.to_pylist() if row["step_seconds"] is not None]


def _title(label: str, point: RunPoint, merged: bool) -> str:
    """Return the name by which a run is chosen; where sweeps are merged, each has its own repeat 0 of a cell."""
    sweep = f"{MergedName.of(point.run).sweep}, " if merged else ""
    return f"{label} ({sweep}repeat {point.repeat})"


def _row(label: str, title: str, point: RunPoint, step: dict[str, Any]) -> dict[str, Any]:
    return {
        "run": point.run,
        "cell": label,
        "title": title,
        "number": str(point.repeat),
        "rank": step["rank"],
        "step": step["step"],
        "phase": step["phase"],
        "step_seconds": float(f"{step['step_seconds']:.5g}"),
    }


def _domain(rows: Sequence[DataRow]) -> tuple[float, float]:
    """Return the shortest step, and the longest within `BAND_REACH` times the slowest run's median, in seconds."""
    seconds: dict[str, list[float]] = {}
    for row in rows:
        seconds.setdefault(str(row["run"]), []).append(row["step_seconds"])
    top = BAND_REACH * max(map(median, seconds.values()))
    return min(map(min, seconds.values())), min(top, max(map(max, seconds.values())))


def _draw(palette: Palette, rows: Sequence[DataRow], titles: list[str], labels: list[str]) -> Chart:
    domain = _domain(rows)
    chosen = alt.param(
        name="run_title", value=ALL_RUNS, bind=alt.binding_select(options=[ALL_RUNS, *titles], name="Run ")
    )
    shown = {"title": "run", "step": "step", "step_seconds": "seconds", "phase": "phase"}
    scale = alt.Scale(type="log", domain=list(domain), nice=False, clamp=True, reverse=True)
    base = (
        alt.Chart(ROWS)
        .transform_aggregate(step_seconds="max(step_seconds)", groupby=["title", "cell", "number", "step", "phase"])
        .encode(
            x=alt.X("step:Q", title="step", axis=alt.Axis(grid=False, tickMinStep=1, tickCount=8)),
            y=alt.Y("cell:N", sort=labels, title=None, scale=alt.Scale(paddingInner=0.2)),
            yOffset=alt.YOffset("step_seconds:Q", scale=scale),
            color=alt.Color("number:N", legend=None, scale=alt.Scale(range=list(palette.series))),
            opacity=alt.condition(
                f"run_title == {ALL_RUNS!r} || datum.title == run_title", alt.value(0.9), alt.value(0.08)
            ),
            tooltip=[alt.Tooltip(f"{key}:N", title=words) for key, words in shown.items()],
        )
    )
    lines = base.mark_line(strokeWidth=1).encode(detail=alt.Detail("title:N"), order=alt.Order("step:Q"))
    beyond = base.transform_filter(f"datum.step_seconds > {domain[1]!r}").mark_point(
        shape="triangle-up", filled=True, size=40
    )
    cut = any(row["step_seconds"] > domain[1] for row in rows)
    height = BAND_PIXELS * len(labels)
    return (
        alt.layer(lines, *([beyond] if cut else []))
        .add_params(chosen)
        .properties(height=height, usermeta={"bands": len(labels)})
    )
