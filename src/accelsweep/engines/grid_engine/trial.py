"""One job offered to Grid Engine, or submitted and followed, beside all sweeps."""

from __future__ import annotations

import os
import re
import shlex
from pathlib import Path

from accelsweep.engines.grid_engine.ends import away, full
from accelsweep.engines.grid_engine.options import IN_TURN
from accelsweep.engines.grid_engine.queue import reason
from accelsweep.schedulers.job_environment import for_jobs
from accelsweep.schedulers.protocol import JobOffer, answered, ask

_COMMAND = ("-b", "y", "-shell", "n")
_PREFIX = re.compile(r"^(Unable to run job: |verification: |Exiting\.?$)", re.MULTILINE)


def offer(options: str) -> JobOffer:
    """Return whether a node of the empty cluster could take a job with these `options` of qsub, in its own words."""
    asked = ["qsub", "-w", "v", *_of_qsub(options), *_COMMAND, "true"]
    taken, words = answered(*asked)
    said = " ".join(_PREFIX.sub("", words).split())
    return JobOffer(taken, said, shlex.join(asked), passing=not taken and (full(said) is not None or away(said)))


def submit(options: str, command: str, log: Path) -> str:
    """Submit a job with these `options`; return its number."""
    always = ("-terse", "-cwd", "-V", "-j", "y", "-w", "e", "-r", "n", "-N", "accelsweep-doctor", "-o", str(log))
    asked = (*always, *_of_qsub(options), *_COMMAND, "/bin/bash", "-c", command)
    return ask("qsub", *asked, base=for_jobs(os.environ)).strip()


def state(number: str) -> str | None:
    """Return `STATE (REASON)` of a job that has not ended; None once it has."""
    row = re.search(rf"^ *{number} +\S+ +\S+ +\S+ +(\S+)", ask("qstat"), re.MULTILINE)
    return f"{row[1]} ({reason(number)})" if row else None


def _of_qsub(options: str) -> list[str]:
    return [word for word in shlex.split(options) if word != IN_TURN]
