"""Runs and settings as pandas frames. A column's name carries its unit: that of the metric, such as `step_seconds`."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import pandas as pd

from accelsweep.analyse.collected.export import in_utf8
from accelsweep.analyse.collected.runs import RunRow
from accelsweep.core.cells.cell import label
from accelsweep.core.findings.findings import Findings
from accelsweep.core.findings.measured import CellFinding
from accelsweep.core.findings.numbers import Estimate

_TIMES = ("started_at", "finished_at")
_COUNTS = ("repeat", "position", "attempt", "seed")


def runs_frame(rows: Iterable[RunRow], axes: Iterable[str]) -> pd.DataFrame:
    """Return one row for each run, in block order, and for each unsupported setting (whose `run` is missing).

    `axis.KEY` is its value on an axis. Each metric has a column under its name in the reference; one without a value is
    missing, never 0. Times are UTC, and `wall_seconds` is the length of the run with its start and its end.
    """
    found, named = list(rows), list(axes)
    metrics = dict.fromkeys(name for row in found for name in row.metrics)
    frame = _frame([_run(row, named, list(metrics)) for row in found])
    for column in _TIMES:
        frame[column] = pd.to_datetime(frame[column], utc=True, format="ISO8601")
    return frame.astype(dict.fromkeys(_COUNTS, "Int64"))


def _run(row: RunRow, axes: Sequence[str], metrics: Sequence[str]) -> dict[str, Any]:
    return {
        "sweep": row.sweep,
        "run": row.run,
        "setting": row.cell,
        "label": label(row.axes),
        "block": row.block,
        "repeat": row.repeat,
        "position": row.position,
        "attempt": row.attempt,
        "seed": row.seed,
        "outcome": str(row.outcome),
        "reason": row.reason,
        "started_at": row.started_at,
        "finished_at": row.finished_at,
        "wall_seconds": row.wall_seconds,
        "doubts": ", ".join(doubt.code for doubt in row.doubts),
        **{f"axis.{axis}": row.axes.get(axis) for axis in axes},
        **{metric: _number(row.value(metric)) for metric in metrics},
    }


def _frame(rows: Sequence[dict[str, Any]]) -> pd.DataFrame:
    """Return the rows as a frame, whose texts pandas keeps in UTF-8: an axis' value may hold half a surrogate pair."""
    return pd.DataFrame(
        [{in_utf8(name): in_utf8(one) if isinstance(one, str) else one for name, one in row.items()} for row in rows]
    )


def _number(value: float | None) -> float:
    return float("nan") if value is None else value


def settings_frame(findings: Findings) -> pd.DataFrame:
    """Return one row for each setting and kind of hardware, in the order of the grid, with the report's numbers.

    The rate stands under the name of its metric, such as `samples_per_second`. `speedup_ratio` is the ratio to the
    baseline, missing where there is none. `NAME_low` and `NAME_high` are the ends of an interval. Costs stand under
    their own names. `NAME_median` is the median of any metric over the repeats.
    """
    return _frame([_setting(findings, cell) for cell in findings.cells])


def _setting(findings: Findings, cell: CellFinding) -> dict[str, Any]:
    row: dict[str, Any] = {"setting": cell.cell, "label": cell.label}
    row |= {f"axis.{axis}": cell.axes.get(axis) for axis in findings.axes}
    row |= {"hardware": cell.hardware, "planned_runs": cell.planned, "measured_runs": cell.measured}
    row |= _interval(findings.rate_metric, cell.rate)
    row |= _interval("speedup_ratio", cell.ratio)
    row |= {"verdict": cell.verdict.value, "verdict_reason": cell.verdict_reason}
    row |= _interval("quality", cell.quality) | _interval("quality_difference", cell.quality_difference)
    row |= {"quality_verdict": cell.quality_verdict}
    row |= _interval("time_to_target_seconds", cell.time_to_target)
    for name in sorted({name for each in findings.cells for name in each.costs}):
        row |= _interval(name, cell.costs.get(name))
    for name in sorted({name for each in findings.cells for name in each.metrics}):
        summary = cell.metrics.get(name)
        row[f"{name}_median"] = _number(summary.median if summary else None)
    row["bottleneck"] = cell.bottleneck.verdict if cell.bottleneck else None
    row["doubts"] = ", ".join(dict.fromkeys(doubt.code for doubt in cell.doubts))
    return row | {"reasons": "; ".join(cell.reasons)}


def _interval(name: str, estimate: Estimate | None) -> dict[str, float]:
    ends = (None, None, None) if estimate is None else (estimate.value, estimate.low, estimate.high)
    return {column: _number(end) for column, end in zip((name, f"{name}_low", f"{name}_high"), ends, strict=True)}
