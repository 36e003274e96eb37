"""A finished block wins: where a job that has failed left its block's done file, the block is done.

With cgroups Slurm calls a job failed in which Linux killed any process for lack of memory. That is also the end of
a run that is `out_of_memory` as expected, after which the supervisor measured the rest. Snakemake would remove the done
file of such a job and submit a second, empty one. The same holds for a job that is ended while it cleans up.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

_RULES = ("block", "block_across_nodes")
RecordStamp = tuple[int, int] | None


def let_win(workflow: Any, done_files: list[str]) -> None:
    """Let Snakemake take the jobs of finished blocks for good ones, by those of the `done_files` that are new.

    To be called when its scheduler stands and before it submits anything. The Snakemakes inside the jobs are told to
    keep what they made. This one removes what other failed jobs made, as it would have done anyway.
    """
    before = {path: _stamp(path) for path in done_files}
    workflow.execution_settings.keep_incomplete = True  # handed on to jobs
    scheduler = workflow.scheduler
    failed = scheduler.error_callback

    def ended(job: Any) -> None:
        made = [str(path) for path in job.output]
        finished = job.rule.name in _RULES and all(_stamp(path) not in (None, before.get(path)) for path in made)
        if finished:
            scheduler.finish_callback(job)
            return
        for path in made:
            Path(path).unlink(missing_ok=True)
        failed(job)

    scheduler.error_callback = ended


def _stamp(path: str) -> RecordStamp:
    """Return what changes when a file is written anew; None where there is none."""
    try:
        status = Path(path).stat()
    except OSError:
        return None
    return status.st_mtime_ns, status.st_ino
