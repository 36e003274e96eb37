"""The jobs that an earlier head left behind.

A killed head leaves its jobs behind, and Snakemake would submit second copies of them. A new head waits for the old
jobs, or cancels them, before it submits anything. Meanwhile it looks after them as after its own.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from accelsweep.base.errors import AccelsweepError
from accelsweep.drive.jobs.listed import jobs_of
from accelsweep.drive.jobs.queue import Queue
from accelsweep.engines.ask import ask
from accelsweep.engines.engine import Engine, Job, Remedy

_LOOK_SECONDS = 5.0
_SILENCE_SECONDS = 900.0
"""The engine may fail to answer for so long before the head gives up: a controller that starts again takes minutes."""


def settle_old_jobs(
    queue: Queue, *, cancel: bool, watch: Callable[[], None] = lambda: None, deadline: float | None = None
) -> None:
    """Return when no job of an earlier head is left; `cancel` ends these jobs, otherwise they are waited for.

    No run of them begins after `deadline`, on the queue's clock. `watch` is called now and then while it waits. Raises
    AccelsweepError where the engine does not answer for a quarter of an hour.
    """
    if queue.engine is None or not queue.folder.block_names():
        return
    told: set[str] = set()
    heard_at = queue.clock()
    while True:
        late = deadline is not None and queue.clock() >= deadline
        try:
            if not (old := jobs_of(queue.folder, queue.engine)):
                return
            _tell(queue, old, told, cancel=cancel)
            if cancel:
                ask(*queue.engine.cancel([job.number for job in old]))
            else:
                _look_after(queue, queue.engine, old, late=late)
            heard_at = queue.clock()
        except AccelsweepError as error:
            if queue.clock() - heard_at >= _SILENCE_SECONDS:
                raise
            queue.tell_once(f"{error}; asking again for {_SILENCE_SECONDS / 60:.0f} minutes")
        watch()
        time.sleep(_LOOK_SECONDS / 5 if cancel else _LOOK_SECONDS)


def _tell(queue: Queue, old: Sequence[Job], told: set[str], *, cancel: bool) -> None:
    for job in old:
        if job.number not in told:
            queue.say(f"left by an earlier head: {job}; " + ("cancelling it" if cancel else "waiting for it"))
    told |= {job.number for job in old}


def _look_after(queue: Queue, engine: Engine, old: Sequence[Job], *, late: bool) -> None:
    """Cancel what need not be waited for, because it cannot start or is `late`, and see to the rest."""
    if late and not queue.folder.stop.exists():
        queue.folder.stop.touch()
        queue.say("the time budget is spent: no further run is started")
    vain = [job for job in old if engine.waits(job) and (late or engine.hopeless(job.reason))]
    for job in vain:
        why = "the time budget is spent" if late else f"no waiting ends {job.reason}"
        queue.carry_out(Remedy(engine.cancel([job.number]), f"job {job.number} of an earlier head: {why}; cancelled"))
    queue.look_after(engine, [job for job in old if job not in vain])
