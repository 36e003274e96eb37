"""The table of jobs: what the cluster told beside the settings, and whether the queue makes another one the soonest."""

from __future__ import annotations

from accelsweep.features.accounting.report import jobs_table, last_lines
from accelsweep.records.estimates import Summary
from accelsweep.records.findings import Findings
from accelsweep.report.report_tables import build_tables
from accelsweep.report.setting_table import absent_metrics


def told(findings: Findings, *waits: tuple[float | None, float]) -> Findings:
    """Return findings in which the first settings waited so long (None: not known) for results of so many seconds."""

    def one(value: float | None, unit: str = "s", why: str | None = None) -> Summary:
        return Summary(median=value, minimum=value, maximum=value, count=value is not None, unit=unit, reason=why)

    settings = list(findings.settings)
    for place, (wait, result) in enumerate(waits):
        why = "there is no sacct here" if wait is None else None
        metrics = {
            "job_queue_seconds": one(wait, why=why),
            "job_elapsed_seconds": one(None if wait is None else 120.0, why=why),
            "job_energy_joules": one(None, "J", why or "Slurm does not measure energy on these nodes"),
            "time_to_result_seconds": one(result),
            "time_to_result_with_queue_seconds": one(None if wait is None else wait + result, why=why),
        }
        settings[place] = settings[place].model_copy(update={"metrics": {**settings[place].metrics, **metrics}})
    return findings.model_copy(update={"settings": tuple(settings)})


def test_rows_are_sorted_by_the_result_with_the_queue_and_a_changed_order_is_stated(findings: Findings) -> None:
    found = told(findings, (86_400.0, 10.0), (60.0, 40.0))
    table = jobs_table(found)
    fast, waiting = found.settings[1].label, found.settings[0].label
    assert [[entry.text for entry in row] for row in table.rows] == [
        [fast, "3", "60.0 s", "120 s", "not measured", "40.0 s", "100 s"],
        [waiting, "3", "1 day, 0:00:00", "120 s", "not measured", "10.0 s", "1 day, 0:00:10"],
    ]
    assert table.caption.endswith(f"Excluding queue time, {waiting} is first; including it, {fast} is first.")
    assert table.rows[0][4].detail == "Slurm does not measure energy on these nodes"
    assert last_lines(found) == ["the jobs spent up to 1 day, 0:00:00 in the queue"]
    assert "jobs" in [one.name for one in build_tables(found)]


def test_an_unchanged_order_is_not_mentioned(findings: Findings) -> None:
    assert "Excluding queue time" not in jobs_table(told(findings, (5.0, 10.0), (5.0, 40.0))).caption


def test_without_accounts_there_is_no_table(findings: Findings) -> None:
    assert "jobs" not in [table.name for table in build_tables(findings)]
    assert last_lines(findings) == []
    unknown = told(findings, (None, 10.0))
    assert "jobs" not in [table.name for table in build_tables(unknown)]
    assert "Wait in the queue: not measured: there is no sacct here." in absent_metrics(unknown)
