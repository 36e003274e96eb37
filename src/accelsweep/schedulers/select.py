"""Selects a site's scheduler, detects this process's job, and finds out-of-memory lines in job logs."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple, Protocol

from accelsweep import registry
from accelsweep.config.site import Site
from accelsweep.schedulers.protocol import Scheduler
from accelsweep.schedulers.slurm import SlurmJob, SlurmScheduler, out_of_memory_scope


def scheduler_of(site: Site) -> Scheduler | None:
    """Return the scheduler that runs this site's blocks; None if they are measured on this machine."""
    if site.scheduler == "slurm":
        return SlurmScheduler(site)
    for entry in registry.schedulers():
        if entry.name == site.scheduler:
            scheduler: Scheduler = registry.load(entry.implementation)(site)
            return scheduler
    return None


def scheduler_of_executor(executor: str) -> Scheduler | None:
    """Return the scheduler that Snakemake's `executor` submits to, independent of any site; None if unsupported."""
    names = ("slurm", *(scheduler.name for scheduler in registry.schedulers()))
    schedulers = (scheduler_of(Site(name="any", scheduler=name)) for name in names)
    return next(
        (scheduler for scheduler in schedulers if scheduler is not None and scheduler.executor == executor), None
    )


class ThisJob(Protocol):
    """The job of this process: its scheduler, its number, and how often it was requeued under that number."""

    @property
    def scheduler(self) -> str:
        """The scheduler's name as shown to users."""

    @property
    def number(self) -> str:
        """The job's number."""

    @property
    def restarts(self) -> int:
        """How often the job was requeued."""

    def log(self) -> str | None:
        """Return the path of the log in which the scheduler reports the job's end, or None if unknown."""

    def across_nodes(self, nodes: int, cpus: int, python: Sequence[str]) -> tuple[str, ...] | None:
        """Return the command that starts `python` on each of the job's nodes; None if there is no such command.

        `python` is the command that starts Python on a node, in a container if necessary; the caller appends its
        arguments.
        """


def this_job() -> ThisJob | None:
    """Return the job in which this process runs; None outside a job."""
    jobs = (registry.load(scheduler.job).found() for scheduler in registry.schedulers())
    return SlurmJob.found() or next(filter(None, jobs), None)


class MemoryLine(NamedTuple):
    """A log line in which a scheduler reports that a job, or one of its processes, ran out of memory.

    `key` is the config key that raises the limit.
    """

    scheduler: str
    text: str
    whole_job: bool
    key: str


def memory_lines(lines: Iterable[str]) -> list[MemoryLine]:
    """Find and parse the lines in which a scheduler reports that a job or a process ran out of memory."""
    found = []
    for line in map(str.strip, lines):
        if scope := out_of_memory_scope(line):
            found.append(MemoryLine("Slurm", line, scope == "job", "site.slurm.mem_mb"))
            continue
        for scheduler in registry.schedulers():
            if registry.load(scheduler.says_no_memory)(line):
                found.append(MemoryLine(scheduler.title, line, whole_job=True, key=f"site.{scheduler.name}.mem_mb"))
                break
    return found
