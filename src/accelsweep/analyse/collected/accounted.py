"""The cluster's account of a run's job, as metrics of the run beside those of its record. The record stays as it is.

These numbers are of the whole job: of all its runs, the warm-up and the pauses between them. Their names and scopes say
so, since `energy_joules` and `window_seconds` are of one window. A run without a job, and a sweep whose cluster nobody
asked, have none of them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from accelsweep.analyse.collected.export import in_utf8
from accelsweep.analyse.collected.runs import Reading, RunRow
from accelsweep.base.errors import DamagedFile
from accelsweep.state.accounting import PROVENANCE, Accounting, JobAccount, job_of
from accelsweep.state.folders import SweepFolder

WHOLE_JOB = "the run's whole job"
ITS_NODES = "what Slurm counts on the nodes of the run's whole job"
A_TARGET = "training to the target, validations included"
ONE_EPOCH = "one pass over the training data at the measured rate"


def accounted(folder: SweepFolder, rows: Sequence[RunRow]) -> list[RunRow]:
    """Return the rows with the metrics of their jobs, where the sweep has accounts; as they are where it has none."""
    try:
        jobs = Accounting.read(folder.accounting).jobs
    except (FileNotFoundError, DamagedFile):
        return list(rows)
    return [_with_account(row, jobs) for row in rows]


def _with_account(row: RunRow, jobs: Mapping[str, JobAccount]) -> RunRow:
    number = job_of(row.environment)
    if number is None or number not in jobs:
        return row
    return replace(row, metrics={**row.metrics, **dict(_metrics(row, jobs[number]))})


def _metrics(row: RunRow, job: JobAccount) -> Iterator[tuple[str, Reading]]:
    why = None if job.reason is None else in_utf8(job.reason)
    no_energy = why or (None if job.energy_reason is None else in_utf8(job.energy_reason))
    yield "job_queue_seconds", Reading(job.queue_seconds, "s", why, WHOLE_JOB, PROVENANCE)
    yield "job_elapsed_seconds", Reading(job.elapsed_seconds, "s", why, WHOLE_JOB, PROVENANCE)
    yield "job_energy_joules", Reading(job.energy_joules, "J", no_energy, ITS_NODES, PROVENANCE)
    result = _result(row)
    if result is None:
        return
    yield "time_to_result_seconds", result
    both = None if result.value is None or job.queue_seconds is None else result.value + job.queue_seconds
    queued = f"the job's wait, then {result.scope}"
    yield (
        "time_to_result_with_queue_seconds",
        Reading(both, "s", result.reason or why, queued, f"clock and {PROVENANCE}"),
    )


def _result(row: RunRow) -> Reading | None:
    """Return how long the run's result takes without the queue; None where its task has no such result."""
    target = row.metrics.get("time_to_target_wall_seconds")
    if target is not None:
        return Reading(target.value, "s", target.reason, A_TARGET, "clock")
    samples, rate = row.value("epoch_samples"), row.value("samples_per_second")
    return Reading(samples / rate, "s", None, ONE_EPOCH, "clock") if samples and rate else None
