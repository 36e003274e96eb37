"""Hooks into the main Snakemake process: retries of failed jobs, and polling of Slurm.

For retries, three rules replace Snakemake's single setting (`retries`):

* **A finished block counts as done.** With cgroups, Slurm reports FAILED for a job in which the OOM killer killed any
  process, even if that run is recorded as `out_of_memory` and the rest of the block was measured. Snakemake would
  delete the done file and submit a job with nothing left to do. The same applies to a job killed during cleanup.
* **A job above the scheduler's queue limit is deferred** until another job ends. The same applies while the scheduler
  is unreachable.
* **A rejection is final**, and so is the driver's decision to skip a block: neither is retried.

Snakemake's Slurm plugin polls squeue and reads Slurm's entire configuration every 10 to 180 seconds. Most changes are
visible on the shared file system at no cost: a finished block leaves a done file, and a block that ended early leaves a
halt file. squeue is therefore polled when such a file appears, when the driver detects that a job changed
(`SweepFolder.jobs_changed`), and otherwise once a minute, or every five minutes if a driver is running, because the
driver polls squeue itself.
"""

from __future__ import annotations

import functools
import re
import threading
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from accelsweep.errors import AccelsweepError
from accelsweep.schedulers.protocol import Scheduler, ask
from accelsweep.schedulers.slurm import job_name_prefix

BLOCK_RULES = ("block", "block_across_nodes")

DEFERRED = "accelsweep defers the job of block "
"""Prefix of lines about deferred jobs in Snakemake's log, followed by the job's block and the reason in parentheses."""

_RETRY_SECONDS = 30.0

_MAX_UNREACHABLE = 30
"""Maximum number of times a job is submitted to an unreachable scheduler; restarting a controller takes minutes."""

FileStamp = tuple[int, int] | None


def file_stamp(path: Path | str) -> FileStamp:
    """Return a value that changes when a file is rewritten; None if it does not exist."""
    try:
        status = Path(path).stat()
    except OSError:
        return None
    return status.st_mtime_ns, status.st_ino


def override_retries(
    workflow: Any,
    done_files: Iterable[str],
    scheduler: Scheduler | None = None,
    is_skipped: Callable[[str], bool] = lambda _: False,
) -> None:
    """Replace Snakemake's handling of failed jobs. Must be called once the scheduler exists, before any submission.

    Snakemake processes inside the jobs keep incomplete outputs; this process deletes those of failed jobs, as Snakemake
    does by default. `is_skipped` returns whether the driver has skipped the block with this name.
    """
    workflow.execution_settings.keep_incomplete = True  # passed on to jobs
    before = {path: file_stamp(path) for path in done_files}
    snakemake_scheduler, submissions = workflow.scheduler, None
    if scheduler is not None and not workflow.local_exec:
        submissions = _Submissions(snakemake_scheduler, scheduler)
        submissions.install()
    fail, finish = snakemake_scheduler.error_callback, snakemake_scheduler.finish_callback

    def failed(job: Any) -> None:
        outputs = [str(path) for path in job.output]
        is_block = job.rule.name in BLOCK_RULES
        if is_block and all(file_stamp(path) not in (None, before.get(path)) for path in outputs):
            finished(job)
            return
        for path in outputs:
            Path(path).unlink(missing_ok=True)
        if is_block and is_skipped(job.wildcards.block):
            _exhaust_retries(job)
        if submissions is not None:
            submissions.ended(job)
        fail(job)

    def finished(job: Any) -> None:
        if submissions is not None:
            submissions.ended(job)
        finish(job)

    snakemake_scheduler.error_callback, snakemake_scheduler.finish_callback = failed, finished


def _exhaust_retries(job: Any) -> None:
    job.attempt = max(job.attempt, job.restart_times + 1)


@dataclass
class _Submissions:
    """Accepted jobs, and the slots withheld from Snakemake while the scheduler accepts no more jobs.

    Snakemake counts jobs by the resource `_nodes`. When a job is deferred, the remaining slots are withheld and
    released one at a time as jobs end; the deferred job becomes ready again and waits for a slot.
    """

    snakemake_scheduler: Any
    scheduler: Scheduler
    accepted: set[Any] = field(default_factory=set)
    unreachable: Counter[Any] = field(default_factory=Counter)
    withheld: int = 0

    def install(self) -> None:
        executor = self.snakemake_scheduler._executor
        report_submission, report_error = executor.report_job_submission, executor.report_job_error

        def submitted(job_info: Any, *arguments: Any, **options: Any) -> None:
            self.accepted.add(job_info.job)
            report_submission(job_info, *arguments, **options)

        def failing(job_info: Any, msg: str | None = None, **options: Any) -> None:
            if job_info.external_jobid is None and msg and self._deferred(job_info.job, msg):
                return
            report_error(job_info, msg, **options)

        executor.report_job_submission, executor.report_job_error = submitted, failing
        executor._fallback_account_arg = ""  # the Slurm plugin would guess an account if none is set

    def ended(self, job: Any) -> None:
        """Free one slot in addition to the job's own, to check whether the queue has room again."""
        if job in self.accepted:
            self.accepted.discard(job)
            self._free_slot()

    def _deferred(self, job: Any, refusal: str) -> bool:
        """Return whether a rejected job will be submitted again; if not, exhaust its retries."""
        if self.scheduler.is_unreachable(refusal) and self.unreachable[job] < _MAX_UNREACHABLE:
            self.unreachable[job] += 1
            self._defer(job, f"{self.scheduler.name} does not answer", probe=True)
            return True
        if (limit := self.scheduler.queue_limit(refusal)) is not None and (self.accepted or self._others_in_queue()):
            self._defer(job, limit, probe=not self.accepted)
            return True
        _exhaust_retries(job)
        return False

    def _others_in_queue(self) -> bool:
        try:
            return self.scheduler.in_queue() > 0
        except AccelsweepError:
            return True  # the next rejection triggers another check

    def _defer(self, job: Any, reason: str, *, probe: bool) -> None:
        """Make a job ready again and withhold all free slots; if `probe` is set, free one slot after a delay."""
        from snakemake.logging import logger

        logger.warning(f"{DEFERRED}{job.wildcards.block} ({reason})")
        with self.snakemake_scheduler._lock:
            self.snakemake_scheduler.running.discard(job)
            self.snakemake_scheduler._free_resources(job)
            self.snakemake_scheduler.workflow.dag._ready_jobs.add(job)
            self.withheld += self.snakemake_scheduler.resources["_nodes"]
            self.snakemake_scheduler.resources["_nodes"] = 0
        if probe:
            timer = threading.Timer(_RETRY_SECONDS, self._free_slot)
            timer.daemon = True
            timer.start()

    def _free_slot(self) -> None:
        with self.snakemake_scheduler._lock:
            freed = min(1, self.withheld)
            self.withheld -= freed
            self.snakemake_scheduler.resources["_nodes"] += freed
        self.snakemake_scheduler._open_jobs.release()


STANDALONE_POLL_SECONDS = 60.0
"""Longest interval between polls of squeue without a driver."""

DRIVEN_POLL_SECONDS = 300.0
"""Longest interval while a driver is running, which itself polls squeue once a minute and reports changes."""

ENDING_POLL_SECONDS = 5.0
"""Interval between polls while the job of a finished block ends."""


def cache_slurm_configuration() -> None:
    """Make the Slurm plugin run `scontrol show config` only once more. Must be called before the executor is created.

    The plugin runs this command at import, which cannot be avoided, and would otherwise repeat it for each value that
    it needs.
    """
    import snakemake_executor_plugin_slurm as plugin
    from snakemake_executor_plugin_slurm import job_status_query, validation

    @functools.cache
    def configuration() -> str:
        try:
            return ask("scontrol", "show", "config")
        except AccelsweepError:  # the plugin has defaults in case Slurm does not answer
            return ""

    def configured(name: str) -> int | None:
        match = re.search(rf"^{name}\s*=\s*(\d+)", configuration(), re.MULTILINE)
        return int(match[1]) if match else None

    def min_job_age() -> int | None:
        return configured("MinJobAge")

    def max_array_size() -> int:
        return (configured("MaxArraySize") or 1000) - 1

    plugin.get_min_job_age = validation.get_min_job_age = job_status_query.get_min_job_age = min_job_age
    plugin.get_max_array_size = max_array_size


def override_slurm_polling(workflow: Any, sweep: str, jobs_changed: str, *, driven: bool) -> None:
    """Name jobs after their sweep, and poll squeue only when something may have changed. No-op for other executors.

    Must be called before any submission. If `driven` is set, a driver watches the same jobs, and touches the file
    `jobs_changed` whenever one of them changes.
    """
    if workflow.local_exec or workflow.executor_plugin.name != "slurm":
        return
    executor = workflow.scheduler._executor
    if not executor.run_uuid.startswith(prefix := f"{job_name_prefix(sweep)}_"):
        executor.run_uuid = prefix + executor.run_uuid  # with a driver, an option of the plugin has already done this
        executor.logger.info(f"SLURM run ID: {executor.run_uuid}")
    schedule = PollSchedule(jobs_changed, DRIVEN_POLL_SECONDS if driven else STANDALONE_POLL_SECONDS)
    poll = executor.check_active_jobs

    async def check(active: list[Any]) -> AsyncIterator[Any]:
        done = [str(path) for info in active for path in info.job.output if info.job.rule.name in BLOCK_RULES]
        halts = [path.replace(".done.json", ".halt.json") for path in done]
        if active and not schedule.is_due([*done, *halts]):
            for job in active:
                yield job
            return
        async for job in poll(active):
            yield job

    import asyncio  # not needed by a command that starts no Snakemake

    executor.check_active_jobs = check
    executor.sleep = functools.partial(asyncio.sleep, 1.0)


class PollSchedule:
    """Determines when to poll the controller. The first poll can wait, because no job has been submitted yet."""

    def __init__(self, jobs_changed: str, max_seconds: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._jobs_changed, self._max_seconds, self._clock = jobs_changed, max_seconds, clock
        self._polled_at = clock()
        self._change = file_stamp(jobs_changed)
        self._initial: dict[str, FileStamp] = {}

    def is_due(self, files: Iterable[str]) -> bool:
        """Return whether to poll now, for jobs that write these `files` when they end."""
        now, change = self._clock(), file_stamp(self._jobs_changed)
        stamps = {path: file_stamp(path) for path in files}
        # A file that already exists when its job is first checked was left behind by an earlier job.
        self._initial = {path: self._initial.get(path, stamp) for path, stamp in stamps.items()}
        ended = any(stamp not in (None, self._initial[path]) for path, stamp in stamps.items())
        elapsed = now - self._polled_at
        if elapsed >= self._max_seconds or change != self._change or (ended and elapsed >= ENDING_POLL_SECONDS):
            self._polled_at, self._change = now, change
            return True
        return False
