"""Queue time, run time and energy of a sweep's jobs, from Slurm accounting.

sacct is queried when the blocks are done; each report queries it again while anything is missing. The results are
stored in `sweeps/NAME/accounting.json`, because clusters purge old jobs. If a query fails, the reason is stored
instead, and analysis and report continue.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, ClassVar

from pydantic import model_validator

from accelsweep.analysis.collect import utf8_safe
from accelsweep.analysis.run_results import RunRow
from accelsweep.errors import AccelsweepError, DamagedFile
from accelsweep.json_documents import Document, Frozen
from accelsweep.metrics import Metric
from accelsweep.records.layout import SweepFolder
from accelsweep.records.plan import Manifest
from accelsweep.records.run_files import readable_records
from accelsweep.run_environment import RunEnvironment
from accelsweep.schedulers.protocol import ask

PROVENANCE = "slurm"


def job_of(environment: Mapping[str, Mapping[str, Any]]) -> str | None:
    """Return the Slurm job number from a record's `environment`; None if the run was not part of a job."""
    number = RunEnvironment(environment).before.variables.get("SLURM_JOB_ID")
    return str(number) if number is not None else None


class JobAccount(Frozen):
    """A job's accounting data, or the `reason` why there is none.

    `state` is Slurm's final state. `submitted_at` is the time of the first submission, and `ended_at` is when the last
    start ended, both in ISO 8601 (UTC). A requeued job has several `starts`; `queue_seconds` and `elapsed_seconds` are
    sums over them. If known, `energy_joules` covers all nodes and starts; otherwise, `energy_reason` explains why it is
    missing.
    """

    number: str
    reason: str | None = None
    state: str | None = None
    partition: str | None = None
    nodes: str | None = None
    submitted_at: str | None = None
    ended_at: str | None = None
    starts: int = 0
    queue_seconds: float | None = None
    elapsed_seconds: float | None = None
    energy_joules: float | None = None
    energy_reason: str | None = None

    @model_validator(mode="after")
    def _values_or_reason(self) -> JobAccount:
        if (self.queue_seconds is None) == (self.reason is None):
            raise ValueError("a job needs either accounting data or a reason why there is none")
        return self


class Accounting(Document):
    """The accounting data of a sweep's jobs, keyed by job number."""

    kind: ClassVar[str] = "accounting"

    jobs: dict[str, JobAccount]


_FIELDS = "JobIDRaw,State,Partition,NNodes,NodeList,Submit,Start,End,ElapsedRaw,ConsumedEnergyRaw,WorkDir"

_BATCH_SIZE = 500

_TIMEOUT_SECONDS = 20.0

_SLURMDBD_SECONDS = 6.0
"""slurmctld reports a job's end to slurmdbd within this time."""

_REQUEUED = re.compile(r"REQUEUED|PREEMPTED|NODE_FAIL|RESIZING")
"""Final states of one start of a job, after which the job continues under the same number."""

_INVALID_JOULES = 2.0**63
"""Larger values are either Slurm's 64-bit codes for "unknown", as printed by old versions, or negative numbers."""

_NOT_ENDED = "sacct has no end time for job"

NO_ENERGY = "Slurm does not measure energy on these nodes (AcctGatherEnergyType)"

STEPS_ONLY = "Slurm measured the energy of individual steps, but of no step that covers all nodes of the job"


@dataclass
class Start:
    """A start of a job in sacct's output; `steps` maps step names to joules."""

    number: str
    state: str
    partition: str
    node_count: int
    nodes: str
    submitted: datetime
    started: datetime | None
    ended: datetime | None
    elapsed: float
    steps: dict[str, float] = field(default_factory=dict)


def accounting_file(folder: SweepFolder) -> Path:
    """Return the path of a sweep's accounting file, which exists for Slurm sweeps only."""
    return folder.root / "accounting.json"


def note_accounts(folder: SweepFolder, *, blocks_ended: bool = False) -> None:
    """Query sacct for the jobs in a Slurm sweep's records, and store the results.

    If `blocks_ended`, wait for the accounting data of jobs that have just ended.
    """
    if Manifest.read(folder.manifest).site.scheduler != "slurm":
        return
    stored = _stored(folder) or {}
    records = readable_records(folder, Manifest.read(folder.manifest).wanted_runs())
    numbers = dict.fromkeys(number for record in records if (number := job_of(record.environment)) is not None)
    answers = accounts(folder, [number for number in numbers if number not in stored or stored[number].reason])
    deadline = time.monotonic() + (_SLURMDBD_SECONDS if blocks_ended else 0.0)
    while (late := [number for number, job in answers.items() if _is_late(job)]) and time.monotonic() < deadline:
        time.sleep(1)
        answers |= accounts(folder, late)
    if any(stored.get(number) != account for number, account in answers.items()):
        Accounting(jobs=stored | answers).write(accounting_file(folder))


def _is_late(account: JobAccount) -> bool:
    return account.reason is not None and account.reason.startswith(_NOT_ENDED)


def _stored(folder: SweepFolder) -> dict[str, JobAccount] | None:
    try:
        return Accounting.read(accounting_file(folder)).jobs
    except (FileNotFoundError, DamagedFile):
        return None


def accounts(folder: SweepFolder, numbers: Sequence[str]) -> dict[str, JobAccount]:
    """Return each job's accounting data from sacct, or the reason why there is none."""
    starts: dict[str, list[Start]] = {}
    try:
        for first in range(0, len(numbers), _BATCH_SIZE):
            for start in _starts(folder, numbers[first : first + _BATCH_SIZE]):
                starts.setdefault(start.number, []).append(start)
    except AccelsweepError as error:
        reason = " ".join(str(error).split())
        return {number: JobAccount(number=number, reason=reason) for number in numbers}
    return {number: account(number, starts.get(number, ())) for number in numbers}


def account(number: str, starts: Sequence[Start]) -> JobAccount:
    """Build a job's accounting data from its starts, in order."""
    if not starts:
        return JobAccount(
            number=number, reason=f"sacct has no record of job {number} from this folder (perhaps purged)"
        )
    last = starts[-1]
    if last.ended is None or _REQUEUED.match(last.state):
        reason = f"{_NOT_ENDED} {number} yet ({last.state}); accelsweep report queries it again"
        return JobAccount(number=number, reason=reason)
    waits = [(start.started - start.submitted).total_seconds() for start in starts if start.started is not None]
    energies = [_energy(start) for start in starts if start.started is not None]
    known = [energy for energy in energies if isinstance(energy, float)]
    complete = len(known) == len(energies) and bool(known)
    return JobAccount(
        number=number,
        state=last.state,
        partition=last.partition,
        nodes=last.nodes,
        submitted_at=starts[0].submitted.isoformat(),
        ended_at=last.ended.isoformat(),
        starts=len(waits),
        queue_seconds=sum(waits),
        elapsed_seconds=sum(start.elapsed for start in starts),
        energy_joules=sum(known) if complete else None,
        energy_reason=None if complete else next((reason for reason in energies if isinstance(reason, str)), NO_ENERGY),
    )


def _energy(start: Start) -> float | str:
    """Return the joules of one start, or the reason why they are unknown.

    Slurm's own sum over steps counts a node twice if a step runs inside `batch`. `extern` covers all nodes for the
    entire duration, as does `batch` on a single node. A value of 0 means that there is no energy counter.
    """
    step = "extern" if start.steps.get("extern") else "batch" if start.node_count == 1 else None
    if step is not None and (joules := start.steps.get(step)):
        return joules
    return STEPS_ONLY if any(start.steps.values()) else NO_ENERGY


def _starts(folder: SweepFolder, numbers: Sequence[str]) -> Iterator[Start]:
    """Yield these jobs' starts in order.

    Starts from other folders belong to earlier jobs whose numbers have been reused.
    """
    output = ask(
        *("sacct", "--noheader", "--parsable2", "--duplicates", f"--format={_FIELDS}", f"--jobs={','.join(numbers)}"),
        timeout_seconds=_TIMEOUT_SECONDS,
        environment={"TZ": "UTC"},
    )
    yield from (start for start, home in read_starts(output) if home == str(folder.home.resolve()))


def read_starts(listing: str) -> list[tuple[Start, str]]:
    """Return the starts in sacct's output, each with the folder from which the job was submitted."""
    starts: list[tuple[Start, str]] = []
    for line in listing.splitlines():
        name, state, partition, count, nodes, submit, start, end, elapsed, energy, home = line.split("|", 10)
        number, _, step = name.partition(".")
        if step:
            if starts and starts[-1][0].number == number and energy and float(energy) < _INVALID_JOULES:
                starts[-1][0].steps[step] = float(energy)
            continue
        submitted = _time(submit)
        if submitted is not None:
            times = (submitted, _time(start), _time(end))
            starts.append((Start(number, state, partition, int(count), nodes, *times, float(elapsed or 0)), home))
    return starts


def _time(text: str) -> datetime | None:
    """Parse a time as UTC; return None for `Unknown` and `None`."""
    try:
        return datetime.fromisoformat(text).replace(tzinfo=UTC)
    except ValueError:
        return None


_JOB = "the run's whole job"

_NODES = "Slurm's counters on all nodes of the run's whole job"

_TARGET = "training to the target, including validation"

_EPOCH = "one pass over the training data at the measured rate"


def accounted(folder: SweepFolder, rows: Sequence[RunRow]) -> list[RunRow]:
    """Return the rows with their jobs' metrics added, if accounting data is stored."""
    jobs = _stored(folder)
    if not jobs:
        return list(rows)
    return [
        replace(row, metrics={**row.metrics, **dict(_metrics(row, job))})
        if (job := jobs.get(job_of(row.environment) or ""))
        else row
        for row in rows
    ]


def _metrics(row: RunRow, job: JobAccount) -> Iterator[tuple[str, Metric]]:
    reason = None if job.reason is None else utf8_safe(job.reason)
    no_energy = reason or (None if job.energy_reason is None else utf8_safe(job.energy_reason))
    yield "job_queue_seconds", Metric(job.queue_seconds, "s", reason, _JOB, PROVENANCE)
    yield "job_elapsed_seconds", Metric(job.elapsed_seconds, "s", reason, _JOB, PROVENANCE)
    yield "job_energy_joules", Metric(job.energy_joules, "J", no_energy, _NODES, PROVENANCE)
    result = _result(row)
    if result is None:
        return
    yield "time_to_result_seconds", result
    total = None if result.value is None or job.queue_seconds is None else result.value + job.queue_seconds
    scope, provenance = f"the job's queue time, then {result.scope}", f"clock and {PROVENANCE}"
    yield "time_to_result_with_queue_seconds", Metric(total, "s", result.reason or reason, scope, provenance)


def _result(row: RunRow) -> Metric | None:
    """Return the run's time to result, excluding queue time; None if the task does not define one."""
    target = row.metrics.get("time_to_target_wall_seconds")
    if target is not None:
        return Metric(target.value, "s", target.reason, _TARGET, "clock")
    samples, rate = row.value("epoch_samples"), row.value("samples_per_second")
    return Metric(samples / rate, "s", None, _EPOCH, "clock") if samples and rate else None
