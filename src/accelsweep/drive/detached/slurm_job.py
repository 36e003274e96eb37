"""A head in a Slurm job of its own, which submits the jobs of the sweep."""

from __future__ import annotations

import contextlib
import os
import re
import shlex
import time
from collections.abc import Callable, Sequence

from accelsweep.base.errors import AccelsweepError
from accelsweep.core.sites.slurm import Slurm
from accelsweep.drive.detached.handed import PlaceKind, Whereabouts
from accelsweep.engines.ask import ask
from accelsweep.engines.environment import for_jobs
from accelsweep.state.folders import SweepFolder

_LEAST_MB = 4000
"""Snakemake, the publisher and the report at once take less."""

_NOTICE_SECONDS = 180
_SHORTEST_NOTICE = 20
_LOOK_SECONDS = 1.0
_ANSWER_SECONDS = 5.0
_FORGOTTEN = "Invalid job id"


class HeadJob:
    """Jobs that hold a head. One whose time is up is followed by another one."""

    kind: PlaceKind = "slurm"
    waits = True
    caution: str | None = None

    def __init__(self, slurm: Slurm | None = None, avoid: Sequence[str] = ()) -> None:
        """`slurm` is how the site takes jobs, and no head holds a node to `avoid`; only `start` needs them."""
        self._slurm, self._avoid = slurm or Slurm(), avoid

    def start(self, folder: SweepFolder, command: Sequence[str], name: str, after: str | None = None) -> str:
        """Submit a job that becomes `command`, to begin when the job `after` has ended; return its number."""
        if after is not None and (there := self._successor(name, after)) is not None:
            return there
        submit = ("sbatch", *self._options(folder, name, after), "--wrap", f"exec {shlex.join(command)}")
        try:
            return ask(*submit, base=for_jobs(os.environ, self._slurm.secrets)).strip().partition(";")[0]
        except AccelsweepError as error:
            if not self._avoid:
                raise
            raise AccelsweepError(
                f"{error}. A fleet's head holds none of the {len(self._avoid)} nodes that it compares. "
                "If its partition has no other, site.slurm.head.partition names a partition with other nodes"
            ) from None

    def _successor(self, name: str, after: str) -> str | None:
        """Return the job that waits for the end of `after`: sbatch may have submitted it, and said otherwise."""
        listing = ask("squeue", "--me", "--noheader", "--states=PENDING", f"--name={name}", "--format=%i|%E")
        rows = (line.partition("|") for line in listing.splitlines())
        return next((number for number, _, waits in rows if re.search(rf"\bafterany:{after}\b", waits)), None)

    @property
    def notice_seconds(self) -> int:
        """A head is told so many seconds before its time limit; Slurm may be a minute early."""
        minutes = self._minutes
        return _NOTICE_SECONDS if minutes is None else max(_SHORTEST_NOTICE, min(_NOTICE_SECONDS, 60 * minutes // 4))

    @property
    def _minutes(self) -> int | None:
        return (self._slurm.head and self._slurm.head.minutes) or self._slurm.max_minutes

    def _options(self, folder: SweepFolder, name: str, after: str | None) -> list[str]:
        """Return sbatch's options. `--signal` is the notice before the time limit; a lost node queues the job again."""
        head, slurm = self._slurm.head, self._slurm
        asked: dict[str, object] = {
            "--partition": (head and head.partition) or slurm.cpu_partition or slurm.partition,
            "--account": slurm.account,
            "--qos": slurm.qos,
            "--time": self._minutes,
            "--mem": f"{(head and head.mem_mb) or _LEAST_MB}M",
            "--signal": f"B:USR1@{self.notice_seconds}",
            "--exclude": ",".join(self._avoid) or None,
            "--dependency": after and f"afterany:{after}",
            "--job-name": name,
            "--comment": f"accelsweep head {folder.name}",
            "--chdir": folder.home,
            "--output": str(folder.head_log).replace("%", "%%"),
        }
        fixed = ("--parsable", "--export=ALL", "--requeue", "--open-mode=append", "--nodes=1", "--ntasks=1")
        return [*fixed, *(f"{option}={value}" for option, value in asked.items() if value is not None)]

    def state(self, name: str) -> Whereabouts | None:
        """Return the job, None where it has ended. Raises AccelsweepError if Slurm does not answer."""
        try:
            listing = ask("squeue", "--noheader", f"--jobs={name}", "--format=%i|%T|%r|%N")
        except AccelsweepError as error:
            if _FORGOTTEN in str(error):
                return None
            raise
        for line in listing.splitlines():
            number, state, reason, nodes = line.split("|", 3)
            if number == name:
                words = f"Slurm's job {name} {state} " + (f"on {nodes}" if nodes else f"({reason})")
                return Whereabouts(words, waits=state == "PENDING")
        return None

    def end(self, name: str, say: Callable[[str], None], *, patience_seconds: float) -> None:
        """End the job as Ctrl-C ends a head, or before it begins; cancel it where it takes longer than that."""
        deadline, asked = time.monotonic() + patience_seconds, ""
        while (state := self.state(name)) is not None:
            at_once = state.waits or time.monotonic() > deadline
            command = ["scancel", name] if at_once else shlex.split(self.end_with(name))
            if asked != (asked := shlex.join(command)):
                say(f"ending the head, {state.words}: {asked}")
                ask(*command)
            time.sleep(_LOOK_SECONDS)

    def cancelled(self, name: str) -> bool:
        """Return whether the job is being ended for good; False where it starts again, or nobody answers in time.

        A job that is being ended shows as `COMPLETING`, whatever ends it, and no filter of squeue sees the state below
        that. But one that is to be queued again counts as waiting, and so has used no time (`%M`).
        """
        asked = ("squeue", "--noheader", "--states=COMPLETING", f"--jobs={name}", "--format=%M")
        with contextlib.suppress(AccelsweepError):
            return ask(*asked, patience_seconds=_ANSWER_SECONDS).strip() not in ("", "0:00")
        return False

    def end_with(self, name: str) -> str:
        """Return the command that is Ctrl-C for the head, once it runs."""
        return shlex.join(("scancel", "--batch", "--signal=INT", name))
