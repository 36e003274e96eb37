"""What the head of a sweep knows of its Slurm jobs, asked through squeue, which every site has.

A killed head leaves its jobs behind, and Snakemake would submit second copies of them: a new head finds the old jobs by
their comments (the plugin writes the block's name there) and waits for them or cancels them before it submits anything.
A job that Slurm preempted for good is started again, because the plugin (2.8) would ask after it for ever.
"""

from __future__ import annotations

import re
import subprocess
import time
from collections.abc import Callable, Collection
from dataclasses import dataclass
from pathlib import Path

from accelsweep.core.errors import AccelsweepError, InputError
from accelsweep.core.folders import SweepFolder
from accelsweep.core.plans import Manifest, Site

_FIELDS = "%i|%T|%r|%N|%M|%Z|%k"  # id, state, reason, nodes, elapsed, working directory, comment
_BLOCK = re.compile(r"_(b[0-9a-f]{12})$")
_LOOK_SECONDS = 5.0
_ASK_SECONDS = 15.0
_PATIENCE_SECONDS = 60.0


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


def check_profile(profile: Path, site: Site) -> None:
    """Raise InputError where the profile would submit what the site runs itself, or run what the site submits."""
    files = [profile / name for name in ("profile.yaml", "config.yaml") if (profile / name).is_file()]
    executor = re.search(r"^executor:\s*['\"]?(\w+)", files[0].read_text("utf-8"), re.MULTILINE) if files else None
    if site.scheduler == "slurm" and (executor is None or executor[1] == "local"):
        raise InputError(f"the site '{site.name}' submits to Slurm: add --profile slurm (or choose site=local)")
    if site.scheduler == "local" and executor is not None and executor[1] == "slurm":
        raise InputError(
            f"the site '{site.name}' is this machine, the profile {profile.name} submits to Slurm: add site=NAME, "
            "a file in conf/site/ with `scheduler: slurm` (see conf/site/slurm_example.yaml)"
        )


def jobs(folder: SweepFolder) -> list[Job]:
    """Return the sweep's jobs that wait or run. Raises AccelsweepError if Slurm does not answer."""
    return read_jobs(_ask("squeue", "--me", "--noheader", f"--format={_FIELDS}"), folder)


def read_jobs(listing: str, folder: SweepFolder) -> list[Job]:
    """Return which lines of squeue's `listing` are jobs of the sweep: by working directory and block."""
    blocks = {block.name for block in Manifest.read(folder.manifest).blocks}
    found = []
    for line in listing.splitlines():
        number, state, reason, nodes, elapsed, directory, comment = line.split("|", 6)
        block = _BLOCK.search(comment)
        if block and block[1] in blocks and Path(directory).resolve() == folder.home.resolve():
            found.append(Job(number, block[1], state, reason, nodes, elapsed))
    return found


def settle_old_jobs(
    folder: SweepFolder, say: Callable[[str], None], *, cancel: bool, beat: Callable[[], None] = lambda: None
) -> None:
    """Return when no job of the sweep is left from an earlier head: ended with `cancel`, waited for without.

    `beat` is called now and then while it waits.
    """
    if not folder.manifest.exists():
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
class Preempted:
    """Starts preempted jobs of this head's Snakemake again; `update` may be called as often as one likes."""

    folder: SweepFolder
    say: Callable[[str], None]
    _asked_at: float = 0.0

    def update(self) -> None:
        """Queue again what was preempted for good since the last look. Slurm being away is no reason to stop."""
        if time.monotonic() - self._asked_at < _ASK_SECONDS:
            return
        self._asked_at = time.monotonic()
        log = self.folder.snakemake_log.read_text("utf-8", "replace")
        name = re.search(r"^SLURM run ID: (\S+)", log, re.MULTILINE)
        if name is None:  # Snakemake submits nothing, or has not begun to
            return
        try:
            listing = _ask("squeue", "--noheader", "--states=PREEMPTED", "--format=%i", "--name", name[1])
            self._again(listing.split())
        except AccelsweepError as error:
            self.say(str(error))

    def _again(self, numbers: Collection[str]) -> None:
        for number in numbers:
            _ask("scontrol", "requeue", number)
            self.say(f"job {number} was preempted; it is queued again and goes on where it was")


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
