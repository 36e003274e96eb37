"""The jobs of a sweep in Slurm's queue, found by their comments, where the executor plugin writes the block's name.

A killed head leaves its jobs behind, and Snakemake would submit second copies of them. A new head waits for the old
jobs, or cancels them, before it submits anything.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from accelsweep.drive.slurm.ask import ask
from accelsweep.state.folders import SweepFolder

_FIELDS = "%i|%T|%r|%N|%M|%Z|%k"  # id, state, reason, nodes, elapsed, working directory, comment
_BLOCK = re.compile(r"_(b[0-9a-f]{12})$")
_LOOK_SECONDS = 5.0


@dataclass(frozen=True)
class Job:
    """One of the sweep's jobs as Slurm sees it; `reason` is why it waits, `nodes` are empty until it runs."""

    number: str
    block: str
    state: str
    reason: str
    nodes: str
    elapsed: str

    def __str__(self) -> str:
        """`job 12 RUNNING on gpu1 for 1:03, block b...`."""
        where = f" on {self.nodes} for {self.elapsed}" if self.nodes else f" ({self.reason})"
        return f"job {self.number} {self.state}{where}, block {self.block}"


def job_name_prefix(sweep: str) -> str:
    """Return the beginning of the names of a sweep's jobs, in the at most 50 characters that the plugin takes."""
    return f"accelsweep-{re.sub(r'[^A-Za-z0-9_-]', '-', sweep)}"[:50]


def block_in(comment: str) -> str | None:
    """Return the name of the block in a job's comment, or None."""
    found = _BLOCK.search(comment)
    return found[1] if found else None


def jobs(folder: SweepFolder) -> list[Job]:
    """Return the sweep's jobs that wait or run. Raises AccelsweepError if Slurm does not answer."""
    return read_jobs(ask("squeue", "--me", "--noheader", f"--format={_FIELDS}"), folder)


def read_jobs(listing: str, folder: SweepFolder) -> list[Job]:
    """Return the jobs of the sweep in squeue's `listing`: by working directory and block."""
    blocks = _blocks(folder)
    found = []
    for line in listing.splitlines():
        number, state, reason, nodes, elapsed, directory, comment = line.split("|", 6)
        block = block_in(comment)
        if block is not None and block in blocks and Path(directory).resolve() == folder.home.resolve():
            found.append(Job(number, block, state, reason, nodes, elapsed))
    return found


def _blocks(folder: SweepFolder) -> set[str]:
    """Return the names of the sweep's blocks, by their files: also those of an earlier plan, or of a damaged one."""
    return {path.name.partition(".")[0] for path in folder.root.glob("blocks/b*.json*")}


def settle_old_jobs(
    folder: SweepFolder, say: Callable[[str], None], *, cancel: bool, beat: Callable[[], None] = lambda: None
) -> None:
    """Return when no job of an earlier head is left; `cancel` ends these jobs, otherwise they are waited for.

    `beat` is called now and then while it waits.
    """
    if not _blocks(folder):
        return
    told: set[str] = set()
    while old := jobs(folder):
        for job in old:
            if job.number not in told:
                say(f"left by an earlier head: {job}; " + ("cancelling it" if cancel else "waiting for it"))
        told |= {job.number for job in old}
        beat()
        if cancel:
            ask("scancel", *(job.number for job in old))
        time.sleep(_LOOK_SECONDS / 5 if cancel else _LOOK_SECONDS)
