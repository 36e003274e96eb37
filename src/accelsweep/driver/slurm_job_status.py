"""How Snakemake learns that its Slurm jobs have ended: from their blocks' files first, from the controller seldom.

Snakemake's Slurm plugin asks squeue, and reads the whole configuration of Slurm, every 10 to 180 seconds, whether
anything happened or not. A shared file system tells most of it for nothing: a finished block has a done file, one
that ended early has a halt. So Snakemake asks squeue when such a file is new, when the driver saw a job change
(`SweepFolder.jobs_changed`), and otherwise once a minute, or every five minutes under a driver, which asks by itself.
"""

from __future__ import annotations

import asyncio
import functools
import re
import time
from collections.abc import AsyncIterator, Callable, Iterable
from typing import Any

from accelsweep.driver.job_retries import BLOCK_RULES, FileStamp, stamp_of
from accelsweep.errors import AccelsweepError
from accelsweep.schedulers.protocol import ask
from accelsweep.schedulers.slurm import job_name_prefix

ALONE_SECONDS = 60.0
"""The longest time between two questions to squeue where nothing else asks it."""

DRIVEN_SECONDS = 300.0
"""The same below a driver, which asks squeue once a minute and tells Snakemake of changes."""

ENDING_SECONDS = 5.0
"""The time between two questions while a finished block's job ends."""


def read_configuration_once() -> None:
    """Let the Slurm plugin run `scontrol show config` once more, and not for each thing that it wants to know.

    To be called before the executor is made. The first time is when the plugin is imported, and cannot be avoided.
    """
    import snakemake_executor_plugin_slurm as plugin
    from snakemake_executor_plugin_slurm import job_status_query, validation

    def configured(name: str) -> int | None:
        found = re.search(rf"^{name}\s*=\s*(\d+)", configuration(), re.MULTILINE)
        return int(found[1]) if found else None

    @functools.cache
    def configuration() -> str:
        try:
            return ask("scontrol", "show", "config")
        except AccelsweepError:  # the plugin has an answer for the case that Slurm has none
            return ""

    def min_job_age() -> int | None:
        return configured("MinJobAge")

    def max_array_size() -> int:
        return (configured("MaxArraySize") or 1000) - 1

    plugin.get_min_job_age = validation.get_min_job_age = job_status_query.get_min_job_age = min_job_age
    plugin.get_max_array_size = max_array_size


def follow_jobs(workflow: Any, sweep: str, jobs_changed: str, *, driven: bool) -> None:
    """Name the jobs for their sweep, and let Snakemake ask squeue only when there is something to learn.

    Does nothing under another executor. To be called before anything is submitted. `driven` says that a driver follows
    the same jobs and touches the file `jobs_changed` whenever one of them has changed.
    """
    if workflow.local_exec or workflow.executor_plugin.name != "slurm":
        return
    executor = workflow.scheduler._executor
    if not executor.run_uuid.startswith(prefix := f"{job_name_prefix(sweep)}_"):
        executor.run_uuid = prefix + executor.run_uuid  # under a driver an option of the plugin has done so
        executor.logger.info(f"SLURM run ID: {executor.run_uuid}")
    questions = Questions(jobs_changed, DRIVEN_SECONDS if driven else ALONE_SECONDS)
    ask = executor.check_active_jobs

    async def check(active: list[Any]) -> AsyncIterator[Any]:
        if active and not questions.due(_files_of(active)):
            for job in active:
                yield job
            return
        async for job in ask(active):
            yield job

    executor.check_active_jobs = check
    executor.sleep = functools.partial(asyncio.sleep, 1.0)


def _files_of(active: Iterable[Any]) -> list[str]:
    """Return the done file of each job's block and the halt that stands in its place."""
    done = [str(path) for info in active for path in info.job.output if info.job.rule.name in BLOCK_RULES]
    return [*done, *(path.replace(".done.json", ".halt.json") for path in done)]


class Questions:
    """Decides when to ask the controller. Nothing is asked at first: no job has ended that was not submitted yet."""

    def __init__(self, jobs_changed: str, longest_seconds: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._jobs_changed, self._longest_seconds, self._clock = jobs_changed, longest_seconds, clock
        self._asked_at = clock()
        self._told = stamp_of(jobs_changed)
        self._known: dict[str, FileStamp] = {}

    def due(self, files: Iterable[str]) -> bool:
        """Return whether it is time to ask about jobs that leave these `files` when they end."""
        now, told = self._clock(), stamp_of(self._jobs_changed)
        # A file that was there when its job was first seen is of an earlier job.
        stamps = {path: stamp_of(path) for path in files}
        self._known = {path: self._known.get(path, stamp) for path, stamp in stamps.items()}
        ended = any(stamp not in (None, self._known[path]) for path, stamp in stamps.items())
        waited = now - self._asked_at
        if waited >= self._longest_seconds or told != self._told or (ended and waited >= ENDING_SECONDS):
            self._asked_at, self._told = now, told
            return True
        return False
