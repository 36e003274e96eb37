"""The job that this process is in, whichever engine's it is, and what engines say in logs of jobs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple, Protocol

from accelsweep import registry
from accelsweep.config.site import Site
from accelsweep.schedulers import slurm as slurm_ends
from accelsweep.schedulers.protocol import Engine
from accelsweep.schedulers.slurm import SLURM_VARIABLES, SlurmEngine, SlurmJob, node_name, node_number

__all__ = [
    "RECORDED_VARIABLES",
    "MemoryLine",
    "ThisJob",
    "memory_lines",
    "node_name",
    "node_number",
    "this_job",
]

RECORDED_VARIABLES = (*SLURM_VARIABLES, *(name for one in registry.schedulers() for name in one.variables))
"""The variables of a job's environment that a record keeps."""


class ThisJob(Protocol):
    """A job seen from inside: its engine, its number, and how often it was queued again under that number."""

    @property
    def engine(self) -> str:
        """The engine's name, for users."""

    @property
    def number(self) -> str:
        """The job's number."""

    @property
    def restarts(self) -> int:
        """The number of times that it was queued again."""

    def log(self) -> str | None:
        """Return the path of the log in which the engine reports the job's end, or None where it is not known."""

    def across_nodes(self, nodes: int, cpus: int, python: Sequence[str]) -> tuple[str, ...] | None:
        """Return the command that starts `python` on each of its nodes; None where the engine has none.

        `python` are the words that start Python on a node, through a container if need be. Its arguments come behind.
        """


def this_job() -> ThisJob | None:
    """Return the job that this process is in; None outside a job."""
    jobs = (registry.load(scheduler.job).found() for scheduler in registry.schedulers())
    return SlurmJob.found() or next(filter(None, jobs), None)


class MemoryLine(NamedTuple):
    """An engine's line about lack of memory. It is about the whole job, or about some process that was in it."""

    engine: str
    text: str
    whole_job: bool
    key: str


def memory_lines(lines: Iterable[str]) -> list[MemoryLine]:
    """Return the engines' own lines among these that tell of a lack of memory."""
    return [found for line in lines if (found := _memory_line(line.strip())) is not None]


def _memory_line(line: str) -> MemoryLine | None:
    if slurm_ends.tells_of_memory(line):
        return MemoryLine("Slurm", line, slurm_ends.of_the_whole_job(line), "site.slurm.mem_mb")
    for scheduler in registry.schedulers():
        if registry.load(scheduler.says_no_memory)(line):
            return MemoryLine(scheduler.title, line, whole_job=True, key=f"site.{scheduler.name}.mem_mb")
    return None


# The engine that a site's `scheduler` names.


def engine_of(site: Site) -> Engine | None:
    """Return the engine that takes this site's blocks; None where they are measured on this machine."""
    if site.scheduler == "slurm":
        return SlurmEngine(site)
    targets = (one.engine for one in registry.schedulers() if one.name == site.scheduler)
    made: Iterator[Engine] = (registry.load(target)(site) for target in targets)
    return next(made, None)


def engine_behind(executor: str) -> Engine | None:
    """Return the engine that Snakemake's `executor` submits to, of no particular site; None for one of others."""
    names = ("slurm", *(scheduler.name for scheduler in registry.schedulers()))
    engines = (engine_of(Site(name="any", scheduler=name)) for name in names)
    return next((engine for engine in engines if engine is not None and engine.executor == executor), None)
