"""Jobs that Slurm refused, or that ended before their block did: why, in Slurm's own words or the shell's.

Snakemake's log has a paragraph for each failed job. It names the block, the error of sbatch or the job's state, and the
job's log. A job whose modules, scratch folder or container fail says why in the block's own log.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from accelsweep.base.documents import read_whole
from accelsweep.base.errors import DamagedFile
from accelsweep.base.secrets import masked
from accelsweep.state.folders import SweepFolder
from accelsweep.state.halts import Halt, Why
from accelsweep.state.tail import last_lines

_PARAGRAPH = re.compile(r"^Error in rule block\w*:\n(.*?)^(?:Trying to restart|Exiting because|\[\w{3} )", re.M | re.S)
_BLOCK = re.compile(r"^    output: \S*/(b[0-9a-f]{12})\.done\.json", re.MULTILINE)
_REFUSED = re.compile(
    r"message: SLURM (?:sbatch|job submission) failed\. The error message was '?(.*?)'?\.?\n    \w", re.S
)
_NOT_SUBMITTED = re.compile(
    r"message: Job submission failed with exception: (.+?)(?:For further error details|\n    \w)", re.S
)
_ENDED = re.compile(r"message: SLURM-job '(\d+)' failed.*?SLURM status is: '(\w+)'", re.DOTALL)
_JOB_LOG = re.compile(r"^    log: .*?(\S+/\d+\.log)", re.MULTILINE)
_SLURM_SAYS = re.compile(r"(?:slurmstepd|slurmd|srun): (?:error|fatal): (?!.*[Ee]xited with exit code)(.+)")
_CHATTER = re.compile(r"^(?:sbatch|slurmstepd): (?:error|fatal): ")
_MOST_BYTES = 20_000_000


@dataclass(frozen=True)
class Failure:
    """The end of a block's job: why, and whether these are Slurm's words, which count more than a supervisor's."""

    block: str
    why: str
    of_slurm: bool = True


def note_failed_jobs(folder: SweepFolder, log: Path) -> None:
    """Leave a halt beside each block without an end whose job failed, by Snakemake's `log`.

    A halt that a supervisor left stands, unless Slurm itself says why the job ended.
    """
    for failure in failures(folder, log):
        if folder.done(failure.block).exists() or not folder.block(failure.block).exists():
            continue
        if failure.of_slurm or not folder.halt(failure.block).exists():
            Halt(block=failure.block, why=failure.why).write(folder.halt(failure.block))


def failures(folder: SweepFolder, log: Path) -> list[Failure]:
    """Return the last failure of each block that Snakemake's `log` tells of; none where it cannot be read."""
    try:
        text = read_whole(log, _MOST_BYTES).decode("utf-8", "replace")
    except (OSError, DamagedFile):
        return []
    return list({failure.block: failure for failure in _failures(folder, text)}.values())


def _failures(folder: SweepFolder, text: str) -> Iterator[Failure]:
    for found in _PARAGRAPH.finditer(text):
        paragraph = found[1]
        block = _BLOCK.search(paragraph)
        if block is None:
            continue
        if refused := _REFUSED.search(paragraph):
            yield Failure(block[1], Why.refused.format(words=_in_one_line(refused[1])))
        elif unsent := _NOT_SUBMITTED.search(paragraph):
            yield Failure(block[1], Why.refused.format(words=_in_one_line(unsent[1])))
        elif ended := _ENDED.search(paragraph):
            yield _of_a_job(folder, block[1], ended[1], ended[2], _JOB_LOG.search(paragraph))


def _of_a_job(folder: SweepFolder, block: str, number: str, state: str, log: re.Match[str] | None) -> Failure:
    """Return why a job ended. It ran on a node only where its log is there; the block's log is about it only then."""
    job_log = Path(log[1]) if log else None
    began = job_log is not None and job_log.exists()
    slurm = [said[1] for line in (last_lines(job_log) if job_log else ()) if (said := _SLURM_SAYS.search(line))]
    own = [line for line in last_lines(folder.log(block)) if line.strip()] if began else []
    words = slurm[-1:] or own[-1:] or ["it left no word"]
    where = folder.log(block) if began else folder.snakemake_log
    why = Why.job_ended.format(number=number, state=state, words=words[0].strip(), log=where.relative_to(folder.home))
    return Failure(block, why, of_slurm=bool(slurm))


def _in_one_line(text: str) -> str:
    lines = [_CHATTER.sub("", line.strip()).rstrip(".'") for line in text.splitlines() if line.strip()]
    return masked("; ".join(dict.fromkeys(lines)).replace(":; ", ": ")) or "it gave no reason"
