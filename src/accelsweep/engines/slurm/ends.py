"""Slurm's refusals and ends of jobs: its words in Snakemake's log and in the logs of jobs.

Snakemake's log has a paragraph for each failed job. It holds the error of sbatch or the job's state, and the job's log.
Without cgroups Slurm kills a whole job that takes more memory than it asked for, the supervisor included. Only the log
of the job then tells why. With cgroups Linux kills processes of the job, and Slurm counts them in the job's log
when it ends, for whatever reason. So the killed process may have belonged to an earlier run.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from accelsweep.engines.engine import JobEnd

_REFUSED = re.compile(
    r"message: SLURM (?:sbatch|job submission) failed\. The error message was '?(.*?)'?\.?\n    \w", re.S
)
_NOT_SUBMITTED = re.compile(
    r"message: Job submission failed with exception: (.+?)(?:For further error details|\n    \w)", re.S
)
_ENDED = re.compile(r"message: SLURM-job '(\d+)' failed.*?SLURM status is: '(\w+)'", re.DOTALL)
_JOB_LOG = re.compile(r"^    log: .*?(\S+/\d+\.log)", re.MULTILINE)
_SAYS = re.compile(r"(?:slurmstepd|slurmd|srun): (?:error|fatal): (?!.*[Ee]xited with exit code)(.+)")
_CHATTER = re.compile(r"^(?:sbatch|slurmstepd): (?:error|fatal): ")
_WHOLE_JOB = re.compile(r"exceeded .*memory limit(?! at some point)", re.IGNORECASE)
_MEMORY = re.compile(rf"{_WHOLE_JOB.pattern}|oom[-_ ]?kill|out of memory", re.IGNORECASE)


def ended(paragraph: str) -> JobEnd | None:
    """Return how a job ended, by a paragraph of Snakemake's log; None where it is about no job of Slurm's."""
    if refused := _REFUSED.search(paragraph) or _NOT_SUBMITTED.search(paragraph):
        return JobEnd(refusal="\n".join(_CHATTER.sub("", line.strip()) for line in refused[1].splitlines()))
    if (end := _ENDED.search(paragraph)) is None:
        return None
    log = _JOB_LOG.search(paragraph)
    return JobEnd(number=end[1], state=end[2], log=Path(log[1]) if log else None)


def own_words(lines: Sequence[str]) -> list[str]:
    """Return what Slurm itself says in these lines of a job's log."""
    return [said[1] for line in lines if (said := _SAYS.search(line))]


def tells_of_memory(line: str) -> bool:
    """Return whether Slurm tells in this line that a job, or a process of it, was ended for lack of memory."""
    return line.startswith(("slurm", "srun:")) and _MEMORY.search(line) is not None


def of_the_whole_job(line: str) -> bool:
    """Return whether such a line is about a whole job, which ended with it."""
    return _WHOLE_JOB.search(line) is not None
