"""The settings' jobs on a cluster: how long they waited and ran, what their nodes took, and when a result was there."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from accelsweep.records.findings import CellFinding, Findings
from accelsweep.records.run_record import Outcome
from accelsweep.report import units as fmt
from accelsweep.report.table_model import Column, Entry, ReportTable
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
"""The metrics of the table, and their headings."""


_CAPTION = (
    "Medians over repeats, by Slurm's accounting. They are of whole jobs, which hold many runs. A result is the "
    "target, or one pass over the data. Queues change from day to day, so no verdict rests on them."
)


def tables(findings: Findings) -> list[ReportTable]:
    """Return the table of the jobs, where the cluster told how long the job of some setting waited."""
    known = any(_median(cell, QUEUE) is not None for cell in findings.cells)
    return [jobs_table(findings)] if known else []


def jobs_table(findings: Findings) -> ReportTable:
    """Return one row for each setting whose jobs are known, the soonest result with the queue first."""
    cells = [cell for cell in findings.cells if QUEUE in cell.metrics]
    cells.sort(key=lambda cell: (_median(cell, QUEUED_RESULT) is None, _median(cell, QUEUED_RESULT)))
    return ReportTable(
        name="jobs",
        title="Jobs on the cluster",
        caption=_CAPTION + _turn(cells),
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
    """Return a line with the longest wait of the sweep's jobs, where it is known."""
    waits = [
        found.maximum for cell in findings.cells if (found := cell.metrics.get(QUEUE)) and found.maximum is not None
    ]
    return [f"the jobs waited for up to {_lasting(max(waits))} in the queue"] if waits else []


def _lasting(seconds: float) -> str:
    """Return `42 s`, and from 5 minutes on `6:30:00`."""
    return fmt.number(seconds, "s") if seconds < 300 else format_duration(seconds)


def _turn(cells: Sequence[CellFinding]) -> str:
    """Return a sentence where the queue makes another setting the soonest, empty where it does not."""
    known = [cell for cell in cells if _median(cell, QUEUED_RESULT) is not None]
    if not known:
        return ""
    alone = min(known, key=lambda cell: _median(cell, TIME_TO_RESULT) or 0.0)
    if alone.cell == known[0].cell:
        return ""
    return f" Without the queue {alone.label} has its result first, with it {known[0].label}."


def _median(cell: CellFinding, metric: str) -> float | None:
    found = cell.metrics.get(metric)
    return None if found is None else found.median


def _jobs(cell: CellFinding) -> int:
    return len({point.block for point in cell.runs if point.outcome is not Outcome.not_run})


def _row(cell: CellFinding) -> tuple[Entry, ...]:
    return (Entry(cell.label), Entry(str(_jobs(cell)), order=_jobs(cell)), *(_entry(cell, name) for name in _COLUMNS))


def _entry(cell: CellFinding, name: str) -> Entry:
    found = cell.metrics.get(name)
    if found is None:
        return Entry("no such result", tone="absent")
    if found.median is None:
        return Entry(fmt.ABSENT, found.reason or "", tone="absent")
    text = _lasting(found.median) if found.unit == "s" else fmt.summary(found)
    return Entry(text, order=found.median)


def _data(cell: CellFinding) -> dict[str, Any]:
    return {
        "cell": cell.cell,
        "label": cell.label,
        "jobs": _jobs(cell),
        **{name: _median(cell, name) for name in _COLUMNS},
        "reasons": "; ".join(
            sorted({one.reason for name in _COLUMNS if (one := cell.metrics.get(name)) and one.reason})
        ),
    }
