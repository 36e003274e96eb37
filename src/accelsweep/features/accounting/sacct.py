"""What sacct says of the jobs that measured a sweep: `python -m accelsweep.features.accounting.sacct sweeps/NAME`.

It is asked when the blocks are done, and again by each report as long as something is missing. Its answers are kept in
`sweeps/NAME/accounting.json`, because a cluster forgets its jobs one day. Whatever goes wrong is a reason there, and
costs neither findings nor report.
"""

from __future__ import annotations

import re
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, ClassVar

from pydantic import model_validator

from accelsweep.analysis.collect import in_utf8
from accelsweep.analysis.run_results import Reading, RunRow
from accelsweep.errors import AccelsweepError, DamagedFile
from accelsweep.json_documents import Document, Frozen
from accelsweep.records.layout import SweepFolder, planned_sweep, sweep_parser
from accelsweep.records.plan import Manifest
from accelsweep.records.run_environment import Surroundings
from accelsweep.records.run_files import readable_records
from accelsweep.schedulers.protocol import ask
from accelsweep.signals import exit_code_of

# The cluster's own account of a sweep's jobs: how long each waited and ran, and what its nodes took.

PROVENANCE = "slurm"
"""The source that metrics from a job's account state."""


def job_of(environment: Mapping[str, Mapping[str, Any]]) -> str | None:
    """Return the number of the Slurm job that a record's `environment` was in; None outside a job."""
    number = Surroundings(environment).before.variables.get("SLURM_JOB_ID")
    return str(number) if number is not None else None


class JobAccount(Frozen):
    """One job, or the `reason` why nothing is known of it.

    `state` is Slurm's word for its end. `submitted_at` is its first submission, `ended_at` its last end, both UTC in
    ISO 8601. A job that was queued again has several `starts`: `queue_seconds` and `elapsed_seconds` are sums over
    them. `energy_joules` is of all its nodes and all its time, None with an `energy_reason`.
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
            raise ValueError("a job has either an account or the reason why it has none")
        return self

    @property
    def settled(self) -> bool:
        """Whether the job has ended and is known, so that nobody need be asked again."""
        return self.reason is None


class Accounting(Document):
    """The accounts of the jobs in which a sweep's runs were measured, by the jobs' numbers."""

    kind: ClassVar[str] = "accounting"

    jobs: dict[str, JobAccount]


_FIELDS = "JobIDRaw,State,Partition,NNodes,NodeList,Submit,Start,End,ElapsedRaw,ConsumedEnergyRaw,WorkDir"

_AT_ONCE = 500

_PATIENCE_SECONDS = 20.0

_LATE_SECONDS = 6.0
"""The time within which slurmdbd hears of a job's end from slurmctld."""

_AGAIN = re.compile(r"REQUEUED|PREEMPTED|NODE_FAIL|RESIZING")
"""States of a start that is not the job's last: the job went on later, under the same number."""

_NO_COUNT = 2.0**63
"""From here on joules are none: Slurm's 64-bit marks of an unknown value, which old ones print, or a count below 0."""

NO_ENERGY = "Slurm measures no energy on these nodes (AcctGatherEnergyType)"

PARTS_ALONE = "Slurm measured the energy of single steps, and of no step that covers all nodes of the job"


@dataclass
class Start:
    """One start of a job in sacct's list; `steps` are the joules of its steps by name, where there are any."""

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
    """Return the place of the cluster's account of a sweep's jobs; there is none where no cluster is asked."""
    return folder.root / "accounting.json"


def note_accounts(folder: SweepFolder, *, wait_seconds: float = 0.0) -> None:
    """Ask sacct about the jobs of the sweep's records, and keep the answers; nothing for a sweep of another scheduler.

    `wait_seconds` is the time that a job which has just ended may take to be known as such.
    """
    if Manifest.read(folder.manifest).site.scheduler != "slurm":
        return
    kept = _kept(folder)
    wanted = [number for number in _numbers(folder) if not (number in kept and kept[number].settled)]
    found, last = accounts(folder, wanted), time.monotonic() + wait_seconds
    while any(_late(account) for account in found.values()) and time.monotonic() < last:
        time.sleep(1)
        found |= accounts(folder, [account.number for account in found.values() if _late(account)])
    if any(kept.get(number) != account for number, account in found.items()):
        Accounting(jobs=kept | found).write(accounting_file(folder))


def accounts(folder: SweepFolder, numbers: Sequence[str]) -> dict[str, JobAccount]:
    """Return what sacct says of each of these jobs, or why there is nothing to say."""
    starts: dict[str, list[Start]] = {}
    try:
        for first in range(0, len(numbers), _AT_ONCE):
            for start in _starts(folder, numbers[first : first + _AT_ONCE]):
                starts.setdefault(start.number, []).append(start)
    except AccelsweepError as error:
        why = " ".join(str(error).split())
        return {number: JobAccount(number=number, reason=why) for number in numbers}
    return {number: account(number, starts.get(number, ())) for number in numbers}


def account(number: str, starts: Sequence[Start]) -> JobAccount:
    """Return a job's account from its starts, the last of which stands last."""
    if not starts:
        return JobAccount(number=number, reason=f"sacct knows no job {number} of this folder (any more)")
    last = starts[-1]
    if last.ended is None or _AGAIN.match(last.state):
        return JobAccount(number=number, reason=_UNENDED.format(number=number, state=last.state))
    waits = [(start.started - start.submitted).total_seconds() for start in starts if start.started is not None]
    energies = [_energy(start) for start in starts if start.started is not None]
    known = [energy for energy in energies if isinstance(energy, float)]
    whole = len(known) == len(energies) and bool(known)
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
        energy_joules=sum(known) if whole else None,
        energy_reason=None if whole else next((why for why in energies if isinstance(why, str)), NO_ENERGY),
    )


_UNENDED = "sacct does not know the end of job {number} yet ({state}); accelsweep report asks again"


def _late(account: JobAccount) -> bool:
    return account.reason is not None and account.reason.startswith(_UNENDED.partition("{")[0])


def _energy(start: Start) -> float | str:
    """Return the joules of one start, or why they are not known.

    Slurm's own sum over steps counts twice what `batch` and a step inside it saw of one node. `extern` covers all nodes
    for the whole time, and so does `batch` where there is one node. A 0 stands for no counter.
    """
    whole = "extern" if start.steps.get("extern") else "batch" if start.node_count == 1 else None
    if whole is not None and (joules := start.steps.get(whole)):
        return joules
    return PARTS_ALONE if any(start.steps.values()) else NO_ENERGY


def _starts(folder: SweepFolder, numbers: Sequence[str]) -> Iterator[Start]:
    """Yield the starts of these jobs in sacct's order; those of another folder had the number before it was reused."""
    told = ask(
        *("sacct", "--noheader", "--parsable2", "--duplicates", f"--format={_FIELDS}", f"--jobs={','.join(numbers)}"),
        patience_seconds=_PATIENCE_SECONDS,
        environment={"TZ": "UTC"},
    )
    yield from (start for start, home in read_starts(told) if home == str(folder.home.resolve()))


def read_starts(listing: str) -> list[tuple[Start, str]]:
    """Return the starts in sacct's `listing`, each with the folder that its job was submitted from."""
    found: list[tuple[Start, str]] = []
    for line in listing.splitlines():
        name, state, partition, count, nodes, submit, start, end, elapsed, energy, home = line.split("|", 10)
        number, _, step = name.partition(".")
        if step:
            if found and found[-1][0].number == number and energy and float(energy) < _NO_COUNT:
                found[-1][0].steps[step] = float(energy)
            continue
        submitted = _moment(submit)
        if submitted is not None:
            times = (submitted, _moment(start), _moment(end))
            found.append((Start(number, state, partition, int(count), nodes, *times, float(elapsed or 0)), home))
    return found


def _moment(text: str) -> datetime | None:
    """Return a time in UTC; None for `Unknown` and `None`."""
    try:
        return datetime.fromisoformat(text).replace(tzinfo=UTC)
    except ValueError:
        return None


def _numbers(folder: SweepFolder) -> list[str]:
    """Return the numbers of the jobs in which the runs of the plan were measured, each once."""
    records = readable_records(folder, Manifest.read(folder.manifest).wanted_runs())
    return list(dict.fromkeys(number for record in records if (number := job_of(record.environment)) is not None))


def _kept(folder: SweepFolder) -> dict[str, JobAccount]:
    try:
        return dict(Accounting.read(accounting_file(folder)).jobs)
    except (FileNotFoundError, DamagedFile):
        return {}


# The cluster's account of a run's job, as metrics of the run beside those of its record. The record stays as it is.

WHOLE_JOB = "the run's whole job"

ITS_NODES = "what Slurm counts on the nodes of the run's whole job"

A_TARGET = "training to the target, validations included"

ONE_EPOCH = "one pass over the training data at the measured rate"


def accounted(folder: SweepFolder, rows: Sequence[RunRow]) -> list[RunRow]:
    """Return the rows with the metrics of their jobs, where the sweep has accounts; as they are where it has none."""
    try:
        jobs = Accounting.read(accounting_file(folder)).jobs
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


def main(arguments: list[str] | None = None) -> int:
    """Ask about the jobs of the sweep named on the command line; return the exit code."""
    root = sweep_parser("features.accounting.sacct", __doc__).parse_args(arguments).sweep
    return exit_code_of(lambda: note_accounts(planned_sweep(root), wait_seconds=_LATE_SECONDS))


if __name__ == "__main__":
    sys.exit(main())
