"""The jobs of a sweep in Grid Engine's queue, found by their names."""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import replace
from datetime import datetime
from pathlib import Path

from accelsweep.engines.grid_engine.options import block_in
from accelsweep.errors import AccelsweepError
from accelsweep.schedulers.protocol import Job, Remedy, ask

_ROW = re.compile(
    r"^ *(?P<number>\d+) +\S+ +\S+ +\S+ +(?P<state>[a-zA-Z]+) +(?P<since>\S+ \S+) +(?:(?P<queue>\S+@\S+) +)?\d+.*\n"
    r" +Full jobname: +(?P<name>\S+)",
    re.MULTILINE,
)
_ERROR = re.compile(r"^error reason +\d+: +(.*)", re.MULTILINE)
_SCHEDULING = re.compile(r"^scheduling info: +(.*)", re.MULTILINE)
_TIME = "%m/%d/%Y %H:%M:%S"
_MOST_RELEASES = 3
_MOST_REASONS = 20


def listed(home: Path, blocks: Collection[str]) -> list[Job]:
    """Return the user's jobs that wait or run for one of these `blocks`, submitted from the folder `home`."""
    rows = read_jobs(ask("qstat", "-r"), home, blocks)
    waiting = [job.number for job in rows if waits(job) or in_error(job)][:_MOST_REASONS]
    reasons = {number: reason(number) for number in waiting}
    return [replace(job, reason=reasons.get(job.number, job.reason)) for job in rows]


def in_queue() -> int:
    """Return the number of the user's jobs that wait or run."""
    listing = ask("qstat", "-r")
    return len(_ROW.findall(listing))


def read_jobs(listing: str, home: Path, blocks: Collection[str]) -> list[Job]:
    """Return the jobs in qstat's `listing` that were submitted from `home` for one of these `blocks`."""
    found = []
    for row in _ROW.finditer(listing):
        block = block_in(row["name"], home)
        if block in blocks and block is not None:
            elapsed = _since(row["since"]) if row["queue"] else ""
            found.append(Job(row["number"], block, row["state"], "None", row["queue"] or "", elapsed))
    return found


def _since(moment: str) -> str:
    try:
        began = datetime.strptime(moment, _TIME)  # noqa: DTZ007 - qstat states the cluster's local time
    except ValueError:
        return "some time"
    return str(datetime.now() - began).partition(".")[0]  # noqa: DTZ005 - the same


def reason(number: str) -> str:
    """Return why a job waits, as far as the scheduler tells: many sites do not let it (`schedd_job_info`)."""
    try:
        told = ask("qstat", "-j", number)
    except AccelsweepError:  # it has ended meanwhile
        return "None"
    found = _ERROR.search(told) or _SCHEDULING.search(told)
    return found[1].strip() if found else "no reason is told"


def waits(job: Job) -> bool:
    """Return whether a job waits in the queue, for its turn or for another job."""
    return "qw" in job.state and not in_error(job)


def in_error(job: Job) -> bool:
    """Return whether a job could not be started, and stands until somebody clears that."""
    return "E" in job.state


def remedy(job: Job, tried: int) -> Remedy | None:
    """Return what a job needs to run again: one that no node could start stands in the queue for ever."""
    if not in_error(job):
        return None
    said = f"job {job.number} could not be started ({job.reason})"
    if tried < _MOST_RELEASES:
        return Remedy(("qmod", "-cj", job.number), f"{said}; cleared, so that Grid Engine tries again")
    return Remedy(("qdel", job.number), f"{said} for the {tried + 1}th time; cancelled")
