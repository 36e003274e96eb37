"""The report's table of Slurm jobs: queue time, run time, energy, and time to result with and without queue time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from accelsweep.records.findings import Findings, SettingFinding
from accelsweep.report import formatting as fmt
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
    "Medians over repeats, from Slurm accounting. Each job includes many runs. A result is reaching the target, or one "
    "epoch if there is no target. Queue times vary from day to day, so no verdict is based on them."
)


def tables(findings: Findings) -> list[ReportTable]:
    """Return the table of jobs, if any setting's queue time is known."""
    return [jobs_table(findings)] if any(_median(setting, QUEUE) is not None for setting in findings.settings) else []


def jobs_table(findings: Findings) -> ReportTable:
    """Return a row for each setting with known jobs, sorted by time to result including queue time."""
    settings = [setting for setting in findings.settings if QUEUE in setting.metrics]
    settings.sort(key=lambda setting: (_median(setting, QUEUED_RESULT) is None, _median(setting, QUEUED_RESULT)))
    return ReportTable(
        name="jobs",
        title="Jobs on the cluster",
        caption=_CAPTION + _queue_sentence(settings),
        columns=(
            Column("Setting"),
            Column("Jobs", numeric=True),
            *(Column(title, True) for title in _COLUMNS.values()),
        ),
        rows=tuple(_row(setting) for setting in settings),
        data=[_data(setting) for setting in settings],
        empty="No job of this sweep is known.",
    )


def last_lines(findings: Findings) -> list[str]:
    """Return a line with the longest queue time, if known."""
    waits = [setting.metrics[QUEUE].maximum for setting in findings.settings if QUEUE in setting.metrics]
    longest = max((wait for wait in waits if wait is not None), default=None)
    return [] if longest is None else [f"the jobs spent up to {_duration(longest)} in the queue"]


def _duration(seconds: float) -> str:
    """Format a duration as `42 s`, or as `6:30:00` if it is at least 5 minutes."""
    return fmt.number(seconds, "s") if seconds < 300 else format_duration(seconds)


def _queue_sentence(settings: Sequence[SettingFinding]) -> str:
    """Return a note if excluding queue time changes which setting ranks first, else ""."""
    known = [setting for setting in settings if _median(setting, QUEUED_RESULT) is not None]
    if not known:
        return ""
    alone = min(known, key=lambda setting: _median(setting, TIME_TO_RESULT) or 0.0)
    if alone.setting == known[0].setting:
        return ""
    return f" Excluding queue time, {alone.label} is first; including it, {known[0].label} is first."


def _median(setting: SettingFinding, metric: str) -> float | None:
    summary = setting.metrics.get(metric)
    return None if summary is None else summary.median


def _jobs(setting: SettingFinding) -> int:
    return len({point.block for point in setting.runs if point.outcome is not Outcome.not_run})


def _row(setting: SettingFinding) -> tuple[Entry, ...]:
    return (
        Entry(setting.label),
        Entry(str(_jobs(setting)), order=_jobs(setting)),
        *(_entry(setting, name) for name in _COLUMNS),
    )


def _entry(setting: SettingFinding, name: str) -> Entry:
    summary = setting.metrics.get(name)
    if summary is None:
        return Entry("no such result", tone="absent")
    if summary.median is None:
        return Entry(fmt.ABSENT, summary.reason or "", tone="absent")
    return Entry(_duration(summary.median) if summary.unit == "s" else fmt.summary(summary), order=summary.median)


def _data(setting: SettingFinding) -> dict[str, Any]:
    summaries = [setting.metrics[name] for name in _COLUMNS if name in setting.metrics]
    medians = {name: _median(setting, name) for name in _COLUMNS}
    reasons = "; ".join(sorted({summary.reason for summary in summaries if summary.reason}))
    return {"setting": setting.setting, "label": setting.label, "jobs": _jobs(setting), **medians, "reasons": reasons}
