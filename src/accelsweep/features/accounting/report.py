"""The report's table of Slurm jobs: queue time, run time, energy, and time to a result with and without the queue."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from accelsweep.records.findings import CellFinding, Findings
from accelsweep.report import units as fmt
from accelsweep.report.table_model import Column, Entry, ReportTable
from accelsweep.results import Outcome
from accelsweep.significant_digits import format_duration

QUEUE, TIME_TO_RESULT, QUEUED_RESULT = (
    "job_queue_seconds",
    "time_to_result_seconds",
    "time_to_result_with_queue_seconds",
)

_COLUMNS = {
    QUEUE: "Wait in the queue",
    "job_elapsed_seconds": "Length of the job",
    "job_energy_joules": "Energy of the job",
    TIME_TO_RESULT: "Result without the queue",
    QUEUED_RESULT: "Result with the queue",
}
"""Metric -> column heading."""

_CAPTION = (
    "Medians over repeats, from Slurm's accounting, of whole jobs with many runs each. A result is the target, or one "
    "epoch. Queues change from day to day, so no verdict rests on them."
)


def tables(findings: Findings) -> list[ReportTable]:
    """Return the table of jobs, where the queue time of some setting is known."""
    return [jobs_table(findings)] if any(_median(cell, QUEUE) is not None for cell in findings.cells) else []


def jobs_table(findings: Findings) -> ReportTable:
    """Return a row for each setting with known jobs, the earliest result including the queue first."""
    cells = [cell for cell in findings.cells if QUEUE in cell.metrics]
    cells.sort(key=lambda cell: (_median(cell, QUEUED_RESULT) is None, _median(cell, QUEUED_RESULT)))
    return ReportTable(
        name="jobs",
        title="Jobs on the cluster",
        caption=_CAPTION + _queue_sentence(cells),
        columns=(
            Column("Setting"),
            Column("Jobs", numeric=True),
            *(Column(title, True) for title in _COLUMNS.values()),
        ),
        rows=tuple(_row(cell) for cell in cells),
        data=[_data(cell) for cell in cells],
        empty="No job of this sweep is known.",
    )


def last_lines(findings: Findings) -> list[str]:
    """Return a line with the longest queue time, where it is known."""
    waits = [cell.metrics[QUEUE].maximum for cell in findings.cells if QUEUE in cell.metrics]
    longest = max((wait for wait in waits if wait is not None), default=None)
    return [] if longest is None else [f"the jobs waited for up to {_duration(longest)} in the queue"]


def _duration(seconds: float) -> str:
    """Return `42 s`, and from 5 minutes on `6:30:00`."""
    return fmt.number(seconds, "s") if seconds < 300 else format_duration(seconds)


def _queue_sentence(cells: Sequence[CellFinding]) -> str:
    """Return a sentence if another setting is first without the queue, else nothing."""
    known = [cell for cell in cells if _median(cell, QUEUED_RESULT) is not None]
    if not known:
        return ""
    alone = min(known, key=lambda cell: _median(cell, TIME_TO_RESULT) or 0.0)
    if alone.cell == known[0].cell:
        return ""
    return f" Without the queue {alone.label} has its result first, with it {known[0].label}."


def _median(cell: CellFinding, metric: str) -> float | None:
    summary = cell.metrics.get(metric)
    return None if summary is None else summary.median


def _jobs(cell: CellFinding) -> int:
    return len({point.block for point in cell.runs if point.outcome is not Outcome.not_run})


def _row(cell: CellFinding) -> tuple[Entry, ...]:
    return (Entry(cell.label), Entry(str(_jobs(cell)), order=_jobs(cell)), *(_entry(cell, name) for name in _COLUMNS))


def _entry(cell: CellFinding, name: str) -> Entry:
    summary = cell.metrics.get(name)
    if summary is None:
        return Entry("no such result", tone="absent")
    if summary.median is None:
        return Entry(fmt.ABSENT, summary.reason or "", tone="absent")
    return Entry(_duration(summary.median) if summary.unit == "s" else fmt.summary(summary), order=summary.median)


def _data(cell: CellFinding) -> dict[str, Any]:
    summaries = [cell.metrics[name] for name in _COLUMNS if name in cell.metrics]
    medians = {name: _median(cell, name) for name in _COLUMNS}
    reasons = "; ".join(sorted({summary.reason for summary in summaries if summary.reason}))
    return {"cell": cell.cell, "label": cell.label, "jobs": _jobs(cell), **medians, "reasons": reasons}
