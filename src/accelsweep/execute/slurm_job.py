"""What a supervisor knows of the Slurm job that it runs in, and what the job's log says of how an earlier one ended.

Without cgroups Slurm kills a whole job that takes more memory than it asked for, the supervisor included; only the log
of the job tells then why.
"""

from __future__ import annotations

import os
import re
import subprocess
from functools import cache
from pathlib import Path

_MEMORY = re.compile(r"exceeded .*memory limit|oom[-_ ]?kill|out of memory", re.IGNORECASE)
_PATIENCE_SECONDS = 20.0
_MOST_BYTES = 100_000


@cache
def job_log() -> str | None:
    """Return the path of the file that holds what Slurm says of this process's job; None outside a job."""
    job = os.environ.get("SLURM_JOB_ID")
    if job is None:
        return None
    command = ("scontrol", "show", "job", "--oneliner", job)
    try:
        answer = subprocess.run(command, capture_output=True, text=True, check=True, timeout=_PATIENCE_SECONDS)
    except (OSError, subprocess.SubprocessError):
        return None  # not in a container, for one
    found = re.search(r"\bStdErr=(\S+)", answer.stdout)
    return found[1] if found else None


def lack_of_memory(log: str | None) -> str | None:
    """Return the line in a job's log that says that it was killed for lack of memory, or None if none does."""
    if log is None:
        return None
    try:
        with Path(log).open("rb") as file:
            file.seek(max(0, file.seek(0, os.SEEK_END) - _MOST_BYTES))
            lines = file.read().decode("utf-8", "replace").splitlines()
    except OSError:
        return None
    return memory_line(lines)


def memory_line(lines: list[str]) -> str | None:
    """Return the first of Slurm's own lines among these that tells of a lack of memory."""
    return next((line.strip() for line in lines if line.startswith(("slurm", "srun:")) and _MEMORY.search(line)), None)
