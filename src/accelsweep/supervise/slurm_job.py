"""The Slurm job of a supervisor, and the lines in the job's log about the end of an earlier one.

Without cgroups Slurm kills a whole job that takes more memory than it asked for, the supervisor included. Only the log
of the job then tells why. With cgroups the kernel kills processes of the job, and Slurm counts them in the job's log
when it ends, for whatever reason. So the killed process may have belonged to an earlier run.
"""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Iterable, Sequence
from functools import cache
from pathlib import Path

from accelsweep.state.tail import last_lines

_ENDED = re.compile(r"exceeded .*memory limit(?! at some point)", re.IGNORECASE)
_MEMORY = re.compile(rf"{_ENDED.pattern}|oom[-_ ]?kill|out of memory", re.IGNORECASE)
_PATIENCE_SECONDS = 20.0
_MOST_BYTES = 100_000


@cache
def job_log() -> str | None:
    """Return the path of Slurm's log of this process's job; None outside a job."""
    job = os.environ.get("SLURM_JOB_ID")
    if job is None:
        return None
    command = ("scontrol", "show", "job", "--oneliner", job)
    try:
        answer = subprocess.run(command, capture_output=True, text=True, check=True, timeout=_PATIENCE_SECONDS)
    except (OSError, subprocess.SubprocessError):
        return None  # inside a container, for example
    found = re.search(r"\bStdErr=(\S+)", answer.stdout)
    return found[1] if found else None


def lack_of_memory(logs: Sequence[str | None]) -> str | None:
    """Return Slurm's line for a lack of memory as the cause, where a run took the jobs with these logs down, or None.

    The line is about the end of a whole job. If several jobs all have such lines, one about single processes counts
    too.
    """
    told = [memory_lines(last_lines(Path(log), most_bytes=_MOST_BYTES) if log else ()) for log in dict.fromkeys(logs)]
    ended = next((line for lines in told for line in lines if _ENDED.search(line)), None)
    if ended is None and len(told) > 1 and all(told):
        return told[0][0]
    return ended


def memory_lines(lines: Iterable[str]) -> list[str]:
    """Return Slurm's own lines among these that tell of a lack of memory."""
    return [line.strip() for line in lines if line.startswith(("slurm", "srun:")) and _MEMORY.search(line)]
