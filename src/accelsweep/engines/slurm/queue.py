"""The jobs of a sweep in Slurm's queue, found by their comments, where the executor plugin writes the block's name."""

from __future__ import annotations

import os
import re
from collections.abc import Collection
from pathlib import Path

from accelsweep.engines.ask import ask
from accelsweep.engines.engine import Job, Remedy

_FIELDS = "%i|%T|%r|%P|%N|%M|%Z|%k"  # id, state, reason, partition, nodes, elapsed, working directory, comment
_BLOCK = re.compile(r"_(b[0-9a-f]{12})$")
_COULD_NOT_START = "launch fail"  # "launch failed requeued held", "launch failure limit exceeded requeued held"
_MOST_RELEASES = 3
_OVER_FOR_GOOD = {"PREEMPTED": "was preempted", "NODE_FAIL": "lost its node"}
"""States that the plugin takes for temporary ones, with words for them."""

HOLDING = "RUNNING,COMPLETING,CONFIGURING,SUSPENDED"
"""The states in which a job counts against what its user may hold at once."""

_NEVER = re.compile(
    r"PartitionTimeLimit|BadConstraints|Invalid(Account|QOS)|DependencyNeverSatisfied|(Assoc|QOS)\w*PerJob\w*"
    r"|QOSMin\w+|\w*NotAllowed"
)
"""Slurm's reasons, see squeue(1), for which a job waits until its request or the cluster's limits are changed."""

_FEW_NODES = "PartitionNodeLimit"
"""A reason that an ask for too many nodes has, but nodes that are down, too."""

_OF_ONE_USER = re.compile(r"QOSMax\w*PerUser\w*|AssocMaxJobsLimit")
"""Reasons about what one user holds at once: where he holds nothing, the job alone exceeds it."""

_SPENT = re.compile(r"(?:Assoc|QOS)Grp\w*Minutes\w*|QOSUsageThreshold")
"""Reasons about the hours that an account, or a QOS, may use in a period."""

_CLOSED = re.compile(r"(Partition(?:Down|Inactive)) of (.+)")
"""Reasons that the cluster's staff end, or another partition in the site file; ours name the partition."""


def job_name_prefix(sweep: str) -> str:
    """Return the beginning of the names of a sweep's jobs, in the at most 50 characters that the plugin takes."""
    return f"accelsweep-{re.sub(r'[^A-Za-z0-9_-]', '-', sweep)}"[:50]


def listed(home: Path, blocks: Collection[str]) -> list[Job]:
    """Return the user's jobs that wait or run for one of these `blocks`, submitted from the folder `home`."""
    return read_jobs(ask("squeue", "--me", "--noheader", f"--format={_FIELDS}"), home, blocks)


def read_jobs(listing: str, home: Path, blocks: Collection[str]) -> list[Job]:
    """Return the jobs in squeue's `listing` that were submitted from `home` for one of these `blocks`."""
    found = []
    for line in listing.splitlines():
        job, directory = _read(line)
        if job.block in blocks and Path(directory).resolve() == home.resolve():
            found.append(job)
    return found


def of_snakemake(log: str) -> list[Job] | None:
    """Return the jobs of the Snakemake that writes `log`, ended ones too; None where it has submitted none."""
    name = re.search(r"^SLURM run ID: (\S+)", log, re.MULTILINE)
    if name is None:
        return None
    listing = ask("squeue", "--noheader", "--states=all", f"--format={_FIELDS}", "--name", name[1])
    return [_read(line)[0] for line in listing.splitlines()]


def _read(line: str) -> tuple[Job, str]:
    """Return the job of a line, with its working directory. A job without a block's name in its comment has none."""
    number, state, reason, partition, nodes, elapsed, directory, comment = line.split("|", 7)
    block, named = _BLOCK.search(comment), f"{reason} of {partition}"
    reason = named if _CLOSED.fullmatch(named) else reason
    return Job(number, block[1] if block else "", state, reason, nodes, elapsed), directory


def remedy(job: Job, tried: int) -> Remedy | None:
    """Return what a job needs to run again.

    Some jobs were preempted for good, or Slurm holds them because a node could not start them. The executor plugin
    (2.8) would ask after them for ever.
    """
    if job.state in _OVER_FOR_GOOD:
        said = f"job {job.number} {_OVER_FOR_GOOD[job.state]}; it is queued again and goes on where it was"
        return Remedy(("scontrol", "requeue", job.number), said)
    if not job.reason.startswith(_COULD_NOT_START):
        return None
    said = f"job {job.number} could not be started ({job.reason})"
    if tried < _MOST_RELEASES:
        return Remedy(("scontrol", "release", job.number), f"{said}; released, so that Slurm tries again")
    return Remedy(("scancel", job.number), f"{said} for the {tried + 1}th time; cancelled")


def hopeless(reason: str) -> bool:
    """Return whether no waiting ends this reason."""
    return _NEVER.fullmatch(reason) is not None


def hopeless_alone(reason: str) -> bool:
    """Return whether no waiting ends this reason where none of the user's jobs holds anything."""
    return _OF_ONE_USER.fullmatch(reason) is not None


def of_user(states: str = "") -> list[str]:
    """Return the numbers of the user's jobs in these states (none: all that wait or run), our own job apart."""
    wanted = (f"--states={states}",) if states else ()
    listing = ask("squeue", "--me", "--noheader", *wanted, "--format=%A")
    return [number for number in listing.split() if number != os.environ.get("SLURM_JOB_ID")]


def advice(reason: str) -> str | None:
    """Return what the user can do about a reason that others can end; None where a job waits for its turn."""
    if _SPENT.fullmatch(reason):
        return (
            f"the hours of the account, or of the QOS, are spent ({reason}): jobs start when the cluster's staff grant "
            "more, or a new period begins. For another one press Ctrl-C, and change site.slurm.account or qos"
        )
    if reason == _FEW_NODES:
        return (
            f"the partition has too few nodes, or too few of them are up ({reason}): the job starts once they are. For "
            "a smaller one press Ctrl-C, and lower num_nodes or change site.slurm.partition"
        )
    if closed := _CLOSED.fullmatch(reason):
        return (
            f"partition {closed[2]} is closed ({closed[1]}): its jobs start once the cluster's staff open it. For "
            "another one press Ctrl-C, and change site.slurm.partition or cpu_partition"
        )
    return None
