"""One job offered to Slurm, or submitted and followed, beside all sweeps."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

from accelsweep.engines.ask import answered, ask
from accelsweep.engines.engine import JobOffer
from accelsweep.engines.slurm.refuse import full, keys_for, no_answer

_CHATTER = re.compile(r"^(?:sbatch: (?:error: )?|allocation failure: )+", re.MULTILINE)
_STARTS = re.compile(r"to start at (\S+) using .* on nodes? (\S+)")
_NOT_ENDED = ("PENDING", "CONFIGURING", "RUNNING", "COMPLETING", "SUSPENDED", "REQUEUE")


def offer(options: str) -> JobOffer:
    """Return whether Slurm would take a job with these `options` of sbatch, in its own words."""
    asked = ["sbatch", "--test-only", *shlex.split(options), "--wrap=true"]
    taken, words = answered(*asked)
    command = f"sbatch --test-only {options} --wrap=true"
    if taken:
        starts = _STARTS.search(" ".join(words.split()))
        said = f"Slurm would take it, and start it at {starts[1]} on {starts[2]}" if starts else " ".join(words.split())
        return JobOffer(taken, said, command, nodes=starts[2] if starts else "")
    said = "; ".join(
        dict.fromkeys(" ".join(line.split()) for line in _CHATTER.sub("", words).splitlines() if line.strip())
    )
    return JobOffer(taken, said, command, keys_for(said), passing=full(said) is not None or no_answer(said))


def submit(options: str, command: str, log: Path) -> str:
    """Submit a job with these `options`; return its number."""
    asked = ["sbatch", "--parsable", *shlex.split(options), f"--output={log}", "--job-name=accelsweep-doctor"]
    return ask(*asked, f"--wrap={command}").strip().partition(";")[0]


def state(number: str) -> str | None:
    """Return `STATE (REASON)` of a job that has not ended; None once it has."""
    told = ask("squeue", "--noheader", "--states=all", f"--jobs={number}", "--format=%T|%r").strip()
    words, _, reason = told.partition("|")
    return f"{words} ({reason})" if words.startswith(_NOT_ENDED) else None
