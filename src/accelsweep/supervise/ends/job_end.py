"""The log of a supervisor's job, and its lines about the end of an earlier one."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from pathlib import Path

from accelsweep.engines.this_job import MemoryLine, memory_lines, this_job
from accelsweep.state.tail import last_lines

_MOST_BYTES = 100_000


@cache
def job_log() -> str | None:
    """Return the path of the log of this process's job; None outside a job, and where its engine does not say it."""
    job = this_job()
    return job.log() if job else None


def lack_of_memory(logs: Sequence[str | None]) -> MemoryLine | None:
    """Return the engine's line for a lack of memory as the cause, where a run took the jobs with these logs down.

    The line is about the end of a whole job. If several jobs all have such lines, one about single processes counts
    too. None where there is no such line.
    """
    told = [memory_lines(last_lines(Path(log), most_bytes=_MOST_BYTES) if log else ()) for log in dict.fromkeys(logs)]
    ended = next((line for lines in told for line in lines if line.whole_job), None)
    if ended is None and len(told) > 1 and all(told):
        return told[0][0]
    return ended
