"""The Slurm jobs of a sweep, as its head sees them through squeue, which every site has.

A killed head leaves its jobs behind, and Snakemake would submit second copies of them. A new head finds the old jobs by
their comments, where the plugin writes the block's name. It waits for them or cancels them before it submits anything.
Some jobs were preempted for good, or Slurm holds them because a node could not start them. The plugin (2.8) would ask
after them for ever, so the head makes them run again.
"""

from __future__ import annotations

import re
import subprocess
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from accelsweep.base.errors import AccelsweepError
from accelsweep.state.folders import SweepFolder

_FIELDS = "%i|%T|%r|%N|%M|%Z|%k"  # id, state, reason, nodes, elapsed, working directory, comment
_BLOCK = re.compile(r"_(b[0-9a-f]{12})$")
_LOOK_SECONDS = 5.0
_ASK_SECONDS = 15.0
_PATIENCE_SECONDS = 60.0
_MOST_RELEASES = 3
_COULD_NOT_START = "launch fail"  # "launch failed requeued held", "launch failure limit exceeded requeued held"
_OVER_FOR_GOOD = {"PREEMPTED": "was preempted", "NODE_FAIL": "lost its node"}
"""States that the plugin takes for temporary ones, with words for them."""


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


def jobs(folder: SweepFolder) -> list[Job]:
    """Return the sweep's jobs that wait or run. Raises AccelsweepError if Slurm does not answer."""
    return read_jobs(_ask("squeue", "--me", "--noheader", f"--format={_FIELDS}"), folder)


def read_jobs(listing: str, folder: SweepFolder) -> list[Job]:
    """Return the jobs of the sweep in squeue's `listing`: by working directory and block."""
    blocks = _blocks(folder)
    found = []
    for line in listing.splitlines():
        number, state, reason, nodes, elapsed, directory, comment = line.split("|", 6)
        block = _BLOCK.search(comment)
        if block and block[1] in blocks and Path(directory).resolve() == folder.home.resolve():
            found.append(Job(number, block[1], state, reason, nodes, elapsed))
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
            _ask("scancel", *(job.number for job in old))
        time.sleep(_LOOK_SECONDS / 5 if cancel else _LOOK_SECONDS)


@dataclass
class Stranded:
    """Restarts the jobs of this head's Snakemake that Slurm would never run again.

    `update` may be called at any rate. It also says why jobs wait, whenever the reasons change.
    """

    folder: SweepFolder
    say: Callable[[str], None]
    _asked_at: float = 0.0
    _waiting: frozenset[str] = frozenset()
    _released: Counter[str] = field(default_factory=Counter)

    def update(self) -> None:
        """Look after the jobs, if it is time to. Without an answer from Slurm the sweep goes on."""
        if time.monotonic() - self._asked_at < _ASK_SECONDS:
            return
        self._asked_at = time.monotonic()
        log = self.folder.snakemake_log.read_text("utf-8", "replace")
        name = re.search(r"^SLURM run ID: (\S+)", log, re.MULTILINE)
        if name is None:  # Snakemake submits nothing, or has not begun to
            return
        try:
            states = ",".join(("PENDING", *_OVER_FOR_GOOD))
            listing = _ask("squeue", "--noheader", f"--states={states}", "--format=%i|%T|%r", "--name", name[1])
            for command, sentence in self.remedies(listing):
                _ask(*command)
                self.say(sentence)
            self._tell_of_waiting(listing)
        except AccelsweepError as error:
            self.say(str(error))

    def remedies(self, listing: str) -> Iterator[tuple[tuple[str, ...], str]]:
        """Yield the commands that jobs in squeue's `listing` (number, state, reason) need, with words for the user."""
        for number, state, reason in _rows(listing):
            if state in _OVER_FOR_GOOD:
                said = f"job {number} {_OVER_FOR_GOOD[state]}; it is queued again and goes on where it was"
                yield ("scontrol", "requeue", number), said
            elif reason.startswith(_COULD_NOT_START):
                self._released[number] += 1
                said = f"job {number} could not be started ({reason})"
                if self._released[number] <= _MOST_RELEASES:
                    yield ("scontrol", "release", number), f"{said}; released, so that Slurm tries again"
                else:
                    yield ("scancel", number), f"{said} for the {self._released[number]}th time; cancelled"

    def _tell_of_waiting(self, listing: str) -> None:
        waiting = Counter(reason for _, state, reason in _rows(listing) if state == "PENDING" and reason != "None")
        if waiting.keys() != self._waiting:
            self._waiting = frozenset(waiting)
            counts = ", ".join(f"{count} x {reason}" for reason, count in waiting.items())
            self.say(f"jobs wait in Slurm's queue: {counts}" if counts else "no job waits in Slurm's queue any more")


def _rows(listing: str) -> Iterator[list[str]]:
    return (line.split("|", 2) for line in listing.splitlines())


def _ask(*command: str) -> str:
    try:
        answer = subprocess.run(command, capture_output=True, text=True, check=False, timeout=_PATIENCE_SECONDS)
    except FileNotFoundError:
        raise AccelsweepError(f"there is no {command[0]} here: run this on a login node of the cluster") from None
    except subprocess.TimeoutExpired:
        raise AccelsweepError(f"{command[0]} did not answer within {_PATIENCE_SECONDS:.0f} s") from None
    if answer.returncode != 0:
        raise AccelsweepError(f"{command[0]} failed: {answer.stderr.strip() or answer.stdout.strip()}")
    return answer.stdout
