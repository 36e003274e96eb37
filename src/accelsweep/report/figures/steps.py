"""Steps over time: the raw step times of the runs that readers are most likely to question."""

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
from accelsweep.report import formatting as fmt
from accelsweep.report.figures.axes import tooltip
from accelsweep.report.figures.figure import Chart, DataRow, Figure, Layer, Palette, Skipped
from accelsweep.results import Outcome

ALL_RUNS = "all"
"""The first entry in the list of runs."""

COLUMNS = ("run", "setting", "rank", "step", "phase", "step_seconds")
MAX_RUNS = 12
MAX_BANDS = 6
"""Maximum number of settings to draw; more bands would not fit on a screen."""

BAND_REACH = 10.0
"""A band extends to at most this many times the slowest run's median step; a longer step is drawn as an arrow."""

BAND_PIXELS = 64
"""Height of one setting's band."""

MAX_STEPS = 300
"""Maximum number of steps to draw per run.

Longer runs are thinned to every second, third, ... step, as stated in the note.
"""


def steps_figure(findings: Findings, folder: RunsPlace) -> Figure | Skipped:
    """Return a chart of the selected runs' step times, or why it was not drawn. Damaged files are skipped."""
    runs = selected_runs(findings)
    bands = list(dict.fromkeys(label for label, _ in runs))[:MAX_BANDS]
    rows: list[DataRow] = []
    thinned = False
    for label, point in runs:
        if label not in bands:
            continue
        steps = _read(folder, point.run)
        stride = max(1, math.ceil(len({step["step"] for step in steps}) / MAX_STEPS))
        thinned = thinned or stride > 1
        # In merged sweeps, each sweep contains its own repeat 0 of a setting.
        sweep = f"{MergedName.of(point.run).sweep}, " if findings.merged else ""
        rows += [
            {
                "run": point.run,
                "setting": label,
                "title": f"{label} ({sweep}repeat {point.repeat})",
                "number": str(point.repeat),
                "rank": step["rank"],
                "step": step["step"],
                "phase": step["phase"],
                "step_seconds": float(f"{step['step_seconds']:.5g}"),
            }
            for step in steps
            if step["step"] % stride == 0
        ]
    if not rows:
        return Skipped("steps", f"no {STEPS_FILE} of a measured run could be read")
    titles = list(dict.fromkeys(str(row["title"]) for row in rows))
    labels = list(dict.fromkeys(str(row["setting"]) for row in rows))
    domain = _domain(rows)
    measured = fmt.count(findings.outcomes.get(Outcome.measured, 0), "measured run")
    return Figure(
        name="steps",
        alt=f"Step times of {fmt.count(len(titles), 'run')} of {fmt.count(len(labels), 'setting')}.",
        rows=rows,
        columns=COLUMNS,
        draw=lambda palette: _draw(palette, rows, domain, titles, labels),
        note=f"Each band extends from {fmt.number(domain[0], 's')} to {fmt.number(domain[1], 's')}. "
        f"Of {measured}, {len(titles)} are drawn{'; long runs are thinned' if thinned else ''}.",
    )


def selected_runs(findings: Findings) -> list[tuple[str, RunPoint]]:
    """Return (label, run) for the most relevant runs: recommended, baseline, alternatives, doubted, then the rest."""
    advice = findings.recommendation
    first = [
        advice.choice.setting if advice.choice else None,
        findings.baseline,
        *(c.setting for c in advice.alternatives),
    ]
    rank = {setting: position for position, setting in reversed(list(enumerate(first)))}
    measured = [
        (rank.get(setting.setting, len(first)), not point.doubts, point.repeat, position, setting.label, point)
        for position, setting in enumerate(findings.settings)
        for point in setting.runs
        if point.outcome is Outcome.measured
    ]
    ordered = sorted(measured, key=lambda entry: (entry[2] > 0 and entry[1], *entry[:4]))
    return [(entry[4], entry[5]) for entry in ordered[:MAX_RUNS]]


def _read(folder: RunsPlace, run: str) -> list[dict[str, Any]]:
    columns = ["rank", "step", "phase", "step_seconds"]
    try:
        table = read_steps(folder.steps(run), folder.record(run), MergedName.of(run).name, columns)
    except (FileNotFoundError, DamagedFile):
        return []
    return [row for row in table.to_pylist() if row["step_seconds"] is not None]


def _domain(rows: Sequence[DataRow]) -> tuple[float, float]:
    """Return the range of step times in seconds, capped at `BAND_REACH` times the slowest run's median step."""
    seconds: dict[str, list[float]] = {}
    for row in rows:
        seconds.setdefault(str(row["run"]), []).append(row["step_seconds"])
    top = BAND_REACH * max(map(median, seconds.values()))
    return min(map(min, seconds.values())), min(top, max(map(max, seconds.values())))


def _draw(
    palette: Palette, rows: Sequence[DataRow], domain: tuple[float, float], titles: list[str], labels: list[str]
) -> Chart:
    options = alt.binding_select(options=[ALL_RUNS, *titles], name="Run ")
    selected = alt.param(name="run_title", value=ALL_RUNS, bind=options)
    is_selected = f"run_title == {ALL_RUNS!r} || datum.title == run_title"
    scale = alt.Scale(type="log", domain=list(domain), nice=False, clamp=True, reverse=True)
    base = (
        Layer()
        .transform_aggregate(step_seconds="max(step_seconds)", groupby=["title", "setting", "number", "step", "phase"])
        .encode(
            x=alt.X("step:Q", title="step", axis=alt.Axis(grid=False, tickMinStep=1, tickCount=8)),
            y=alt.Y("setting:N", sort=labels, title=None, scale=alt.Scale(paddingInner=0.2)),
            yOffset=alt.YOffset("step_seconds:Q", scale=scale),
            color=alt.Color("number:N", legend=None, scale=alt.Scale(range=list(palette.series))),
            opacity=alt.condition(is_selected, alt.value(0.9), alt.OpacityValue(0.08)),
            tooltip=tooltip({"title": "run", "step": "step", "step_seconds": "seconds", "phase": "phase"}),
        )
    )
    lines = base.mark_line(strokeWidth=1).encode(detail=alt.Detail("title:N"), order=alt.Order("step:Q"))
    long_steps = base.transform_filter(f"datum.step_seconds > {domain[1]!r}")
    arrows = long_steps.mark_point(shape="triangle-up", filled=True, size=40)
    return (
        alt.layer(lines, *([arrows] if any(row["step_seconds"] > domain[1] for row in rows) else []))
        .add_params(selected)
        .properties(height=BAND_PIXELS * len(labels), usermeta={"bands": len(labels)})
    )
