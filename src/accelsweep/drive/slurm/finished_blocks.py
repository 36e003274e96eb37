"""A finished block wins: where a job that has failed left its block's done file, the block is done.

With cgroups Slurm calls a job failed in which the kernel killed any process for lack of memory. That is also the end of
a run that is `out_of_memory` as expected, after which the supervisor measured the rest. Snakemake would remove the done
file of such a job and submit a second, empty one. The same holds for a job that is ended while it cleans up.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

_RULES = ("block", "block_across_nodes")
Stamp = tuple[int, int] | None


def keep_finished_blocks(workflow: Any) -> None:
    """Let the Snakemake inside a job leave the done file where it is, although Slurm calls the job's step failed."""
    if not workflow.is_main_process:
        workflow.execution_settings.keep_incomplete = True


def let_finished_blocks_win(workflow: Any, done_files: list[str]) -> None:
    """Let the main Snakemake take the jobs of finished blocks for good ones, by the `done_files` that are new.

    To be called when its scheduler stands and before it submits anything.
    """
    before = {path: _stamp(path) for path in done_files}
    scheduler = workflow.scheduler
    failed = scheduler.error_callback

    def ended(job: Any) -> None:
        own = [str(path) for path in job.output] if job.rule.name in _RULES else []
        finished = bool(own) and all((now := _stamp(path)) is not None and now != before.get(path) for path in own)
        (scheduler.finish_callback if finished else failed)(job)

    scheduler.error_callback = ended


def _stamp(path: str) -> Stamp:
    """Return what changes when a file is written anew; None where there is none."""
    try:
        status = Path(path).stat()
    except OSError:
        return None
    return status.st_mtime_ns, status.st_ino
