"""The jobs that an earlier head left behind.

A killed head leaves its jobs behind, and Snakemake would submit second copies of them. A new head waits for the old
jobs, or cancels them, before it submits anything.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable

from accelsweep.base.errors import AccelsweepError
from accelsweep.engines.ask import ask
from accelsweep.engines.engine import Engine, Job
from accelsweep.state.folders import SweepFolder

_LOOK_SECONDS = 5.0


def jobs_of(folder: SweepFolder, engine: Engine) -> list[Job]:
    """Return the sweep's jobs that wait or run. Raises AccelsweepError if the engine does not answer."""
    return engine.jobs(folder.home, block_names(folder))


def cancel_jobs(folder: SweepFolder, engine: Engine) -> None:
    """Cancel the sweep's jobs that wait or run."""
    with contextlib.suppress(AccelsweepError):  # of jobs that are being ended already
        if left := jobs_of(folder, engine):
            ask(*engine.cancel([job.number for job in left]))


def block_names(folder: SweepFolder) -> set[str]:
    """Return the names of the sweep's blocks, by their files: also those of an earlier plan, or of a damaged one."""
    return {path.name.partition(".")[0] for path in folder.root.glob("blocks/b*.json*")}


def settle_old_jobs(
    folder: SweepFolder,
    engine: Engine,
    say: Callable[[str], None],
    *,
    cancel: bool,
    beat: Callable[[], None] = lambda: None,
) -> None:
    """Return when no job of an earlier head is left; `cancel` ends these jobs, otherwise they are waited for.

    `beat` is called now and then while it waits.
    """
    if not block_names(folder):
        return
    told: set[str] = set()
    while old := jobs_of(folder, engine):
        for job in old:
            if job.number not in told:
                say(f"left by an earlier head: {job}; " + ("cancelling it" if cancel else "waiting for it"))
        told |= {job.number for job in old}
        beat()
        if cancel:
            ask(*engine.cancel([job.number for job in old]))
        time.sleep(_LOOK_SECONDS / 5 if cancel else _LOOK_SECONDS)
