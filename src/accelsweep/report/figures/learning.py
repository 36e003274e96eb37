"""How the models learned: training loss and validations, in the quality phase or on the way to a target."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import chain
from typing import Any

import altair as alt

from accelsweep.errors import DamagedFile
from accelsweep.records.findings import Findings, RunPoint
from accelsweep.records.layout import RunsPlace
from accelsweep.records.plan import MergedName
from accelsweep.records.run_files import read_record_at
from accelsweep.report import formatting as fmt
from accelsweep.report.figures.axes import series_encodings, tooltip
from accelsweep.report.figures.figure import MAX_SERIES, Chart, Figure, Layer, Palette, Skipped
from accelsweep.report.figures.steps import selected_runs
from accelsweep.results import LearningCurve

COLUMNS = ("run", "setting", "repeat", "curve", "samples", "seconds", "value")

BAND_PIXELS = 150

MAX_POINTS = 50
"""Maximum number of points to draw of a run's losses; the record has more."""

LOSS = "training loss"


def learning_figure(findings: Findings, folder: RunsPlace) -> Figure | Skipped:
    """Return a chart of the curves of the runs that matter most, a thin line per repeat, or why it was not drawn."""
    curves = [
        (label, point, curve)
        for label, point in selected_runs(findings)
        if (curve := _read(folder, point)) is not None and (curve.losses or curve.validations)
    ]
    settings = list(dict.fromkeys(label for label, _, _ in curves))[:MAX_SERIES]
    metric = findings.quality_metric or "quality"
    rows = list(chain.from_iterable(_rows(label, point, curve, metric) for label, point, curve in curves))
    rows = [row for row in rows if row["setting"] in settings]
    if not rows:
        return Skipped("learning", "no run recorded how it learned")
    bands = [name for name in (metric, LOSS) if any(row["curve"] == name for row in rows)]
    domains = {name: _domain(row["value"] for row in rows if row["curve"] == name) for name in bands}
    titles = {name: _title(name, *domains[name]) for name in bands}
    rows = [
        {**row, "band": titles[row["curve"]], "share": _height(row["value"], *domains[row["curve"]])} for row in rows
    ]
    timed = all(row["seconds"] is not None for row in rows)
    return Figure(
        name="learning",
        alt=f"{' and '.join(bands)} of {fmt.count(len(settings), 'setting')} while training.",
        rows=rows,
        columns=COLUMNS,
        draw=lambda palette: _draw(palette, list(titles.values()), settings, timed=timed),
        note="The time excludes validations." if timed else "",
    )


def _read(folder: RunsPlace, point: RunPoint) -> LearningCurve | None:
    try:
        return read_record_at(folder.record(point.run), MergedName.of(point.run).name).learning
    except (FileNotFoundError, DamagedFile):
        return None


def _rows(label: str, point: RunPoint, curve: LearningCurve, metric: str) -> Iterable[dict[str, Any]]:
    stride = -(-len(curve.losses) // MAX_POINTS) or 1
    for name, points in ((LOSS, curve.losses[::-stride][::-1]), (metric, curve.validations)):
        for each in points:
            yield {
                "run": point.run,
                "setting": label,
                "repeat": point.repeat,
                "curve": name,
                "samples": each.samples,
                "seconds": None if each.seconds is None else float(f"{each.seconds:.4g}"),
                "value": float(f"{each.value:.5g}"),
            }


def _domain(values: Iterable[float]) -> tuple[float, float]:
    known = list(values)
    return min(known), max(known)


def _title(name: str, low: float, high: float) -> str:
    return f"{name}, {fmt.number(low)} to {fmt.number(high)}"


def _height(value: float, low: float, high: float) -> float:
    """Return a value's height in its band, from 0 at the bottom to 1 at the top."""
    return 0.5 if high == low else (value - low) / (high - low)


def _draw(palette: Palette, bands: list[str], settings: list[str], *, timed: bool) -> Chart:
    scale = alt.Scale(domain=[0, 1], nice=False, reverse=True)
    x = ("seconds:Q", "training time in seconds") if timed else ("samples:Q", "training samples")
    titles: Mapping[str, str] = {"setting": "setting", "repeat": "repeat", "curve": "curve", "value": "value"}
    encodings = series_encodings("setting", settings, palette)
    base = Layer().encode(
        x=alt.X(x[0], title=x[1], axis=alt.Axis(grid=False, tickCount=8)),
        y=alt.Y("band:N", sort=bands, title=None, scale=alt.Scale(paddingInner=0.15)),
        yOffset=alt.YOffset("share:Q", scale=scale),
        color=encodings["color"],
        tooltip=tooltip({**titles, "samples": "samples", **({"seconds": "seconds"} if timed else {})}),
    )
    lines = base.mark_line(strokeWidth=1, opacity=0.7).encode(
        detail=[alt.Detail("run:N"), alt.Detail("band:N")], order=alt.Order("samples:Q")
    )
    validations = base.transform_filter(f"datum.curve != {LOSS!r}").mark_point(size=36, filled=True)
    validations = validations.encode(shape=encodings["shape"])
    return alt.layer(lines, validations).properties(height=BAND_PIXELS * len(bands), usermeta={"bands": len(bands)})
