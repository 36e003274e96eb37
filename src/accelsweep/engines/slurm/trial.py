"""One job offered to Slurm, or submitted and followed, beside all sweeps."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

from accelsweep.engines.ask import answered, ask
from accelsweep.engines.engine import JobOffer

_STARTS = re.compile(r"to start at (\S+) using .* on nodes? (\S+)")
_NOT_ENDED = ("PENDING", "CONFIGURING", "RUNNING", "COMPLETING", "SUSPENDED", "REQUEUE")


def offer(options: str) -> JobOffer:
    """Return whether Slurm would take a job with these `options` of sbatch, in its own words."""
    asked = ["sbatch", "--test-only", *shlex.split(options), "--wrap=true"]
    taken, words = answered(*asked)
    said = " ".join(words.split())
    if taken and (starts := _STARTS.search(said)):
        said = f"Slurm would take it, and start it at {starts[1]} on {starts[2]}"
    return JobOffer(taken, said, f"sbatch --test-only {options} --wrap=true")


def submit(options: str, command: str, log: Path) -> str:
    """Submit a job with these `options`; return its number."""
    asked = ["sbatch", "--parsable", *shlex.split(options), f"--output={log}", "--job-name=accelsweep-doctor"]
    return ask(*asked, f"--wrap={command}").strip().partition(";")[0]


def state(number: str) -> str | None:
    """Return `STATE (REASON)` of a job that has not ended; None once it has."""
    told = ask("squeue", "--noheader", "--states=all", f"--jobs={number}", "--format=%T|%r").strip()
    words, _, reason = told.partition("|")
    return f"{words} ({reason})" if words.startswith(_NOT_ENDED) else None
