"""What becomes of a job that failed, in place of Snakemake's one rule for all (`retries`).

* **A finished block wins.** With cgroups Slurm calls a job failed in which Linux killed any process for lack of memory.
  That is also the end of a run that is `out_of_memory` as expected, after which the supervisor measured the rest.
  Snakemake would remove the done file of such a job and submit a second, empty one. The same holds for a job that is
  ended while it cleans up.
* **A job too many waits.** Where the engine bounds the jobs in the queue, what it refused is submitted again when one
  of them has ended. The same holds while the engine does not answer.
* **A refusal stands**, and so does the head's decision to leave a block out: neither is tried again.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from accelsweep.errors import AccelsweepError
from accelsweep.schedulers.protocol import Engine

BLOCK_RULES = ("block", "block_across_nodes")

_AGAIN_SECONDS = 30.0

_MOST_SILENCES = 30
"""So often a job is offered to an engine that does not answer: a controller that starts again takes minutes."""

HELD_BACK = "accelsweep holds back "
"""Begins a line of Snakemake's log about a job that was refused for now: its block, and why in brackets."""

FileStamp = tuple[int, int] | None


def decide(
    workflow: Any,
    done_files: Iterable[str],
    engine: Engine | None = None,
    left_out: Callable[[str], bool] = lambda _: False,
) -> None:
    """Decide about failed jobs of blocks from now on.

    To be called when Snakemake's scheduler stands and before it submits anything. The Snakemakes inside the jobs are
    told to keep what they made; this one removes what other failed jobs made, as it would have done anyway. `left_out`
    tells of a block's name whether the head gave it up.
    """
    workflow.execution_settings.keep_incomplete = True  # handed on to jobs
    before = {path: stamp_of(path) for path in done_files}
    scheduler, submitting = workflow.scheduler, None
    if engine is not None and not workflow.local_exec:
        submitting = _Submitting(scheduler, engine)
        submitting.take_over()
    fail, finish = scheduler.error_callback, scheduler.finish_callback

    def failed(job: Any) -> None:
        made = [str(path) for path in job.output]
        of_block = job.rule.name in BLOCK_RULES
        if of_block and all(stamp_of(path) not in (None, before.get(path)) for path in made):
            finished(job)
            return
        for path in made:
            Path(path).unlink(missing_ok=True)
        if of_block and left_out(job.wildcards.block):
            give_up(job)
        if submitting is not None:
            submitting.ended(job)
        fail(job)

    def finished(job: Any) -> None:
        if submitting is not None:
            submitting.ended(job)
        finish(job)

    scheduler.error_callback, scheduler.finish_callback = failed, finished


def give_up(job: Any) -> None:
    """Let the scheduler take the job's next failure for its last one."""
    job.attempt = max(job.attempt, job.restart_times + 1)


@dataclass
class _Submitting:
    """The jobs that the engine has taken, and the room that is withheld from Snakemake while it takes no more.

    Snakemake counts jobs by the resource `_nodes`. What is left of it is withheld when a job is refused for now, and
    given back one by one as jobs end. The refused job is ready again and waits for it.
    """

    scheduler: Any
    engine: Engine
    taken: set[Any] = field(default_factory=set)
    silences: Counter[Any] = field(default_factory=Counter)
    withheld: int = 0

    def take_over(self) -> None:
        executor = self.scheduler._executor
        report_submission, report_error = executor.report_job_submission, executor.report_job_error

        def submitted(job_info: Any, *arguments: Any, **options: Any) -> None:
            self.taken.add(job_info.job)
            report_submission(job_info, *arguments, **options)

        def failing(job_info: Any, msg: str | None = None, **options: Any) -> None:
            if job_info.external_jobid is None and msg and self._waits(job_info.job, msg):
                return
            report_error(job_info, msg, **options)

        executor.report_job_submission, executor.report_job_error = submitted, failing
        executor._fallback_account_arg = ""  # the Slurm plugin would guess an account where none is stated

    def ended(self, job: Any) -> None:
        """Note the end of a job: there is room for its successor, and for one more, which finds out the limit anew."""
        if job in self.taken:
            self.taken.discard(job)
            self._one_more()

    def _waits(self, job: Any, refusal: str) -> bool:
        """Return whether a refused job is to be submitted again, and see to that."""
        if self.engine.is_unreachable(refusal) and self.silences[job] < _MOST_SILENCES:
            self.silences[job] += 1
            self._hold_back(job, f"{self.engine.name} does not answer")
            self._look_again()
            return True
        if (limit := self.engine.queue_limit(refusal)) is not None and (self.taken or self._others_in_queue()):
            self._hold_back(job, limit)
            if not self.taken:
                self._look_again()
            return True
        give_up(job)
        return False

    def _others_in_queue(self) -> bool:
        try:
            return self.engine.in_queue() > 0
        except AccelsweepError:
            return True  # it is asked again later

    def _hold_back(self, job: Any, why: str) -> None:
        from snakemake.logging import logger

        logger.warning(f"{HELD_BACK}{job.wildcards.block} ({why})")
        with self.scheduler._lock:
            self.scheduler.running.discard(job)
            self.scheduler._free_resources(job)
            self.scheduler.workflow.dag._ready_jobs.add(job)
            self.withheld += self.scheduler.resources["_nodes"]
            self.scheduler.resources["_nodes"] = 0

    def _look_again(self) -> None:
        timer = threading.Timer(_AGAIN_SECONDS, self._one_more)
        timer.daemon = True
        timer.start()

    def _one_more(self) -> None:
        with self.scheduler._lock:
            given = min(1, self.withheld)
            self.withheld -= given
            self.scheduler.resources["_nodes"] += given
        self.scheduler._open_jobs.release()


def stamp_of(path: str) -> FileStamp:
    """Return what changes when a file is written anew; None where there is none."""
    try:
        status = Path(path).stat()
    except OSError:
        return None
    return status.st_mtime_ns, status.st_ino
