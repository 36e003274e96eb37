"""A head in a Slurm job of its own, which submits the jobs of the sweep."""

from __future__ import annotations

import contextlib
import os
import re
import shlex
import time
from collections.abc import Callable, Sequence

from accelsweep.config.site import Slurm
from accelsweep.core.sites.head import DetachedHead
from accelsweep.drive.detached.handed import PlaceKind, Whereabouts
from accelsweep.errors import AccelsweepError, InputError
from accelsweep.records.layout import SweepFolder
from accelsweep.schedulers import slurm
from accelsweep.schedulers.job_environment import for_jobs
from accelsweep.schedulers.protocol import ask
from accelsweep.schedulers.slurm import full, keys_for, offer

_LEAST_MB = 4000
"""Snakemake, the publisher and the report at once take less."""

_NOTICE_SECONDS = 180
_SHORTEST_NOTICE = 20
_LOOK_SECONDS = 1.0
_ANSWER_SECONDS = 5.0
_FORGOTTEN = "Invalid job id"
_REASON_SECONDS = 10.0
"""Slurm tries to start a job when it is submitted, and has its reason to wait soon after."""

_MOST_NODES = 8
"""So many nodes are tried for a head that is in the way of its sweep's jobs."""


class HeadJob:
    """Jobs that hold a head. One whose time is up is followed by another one."""

    kind: PlaceKind = "slurm"
    waits = True
    caution: str | None = None

    def __init__(self, slurm: Slurm | None = None, avoid: Sequence[str] = (), blocks: Sequence[str] = ()) -> None:
        """`slurm` is how the site takes jobs, and no head holds a node to `avoid`; only `start` needs them.

        `blocks` are sbatch's options of the sweep's jobs that take whole nodes: a head must leave them enough.
        """
        self._slurm, self._avoid, self._blocks = slurm or Slurm(), tuple(avoid), blocks

    def check(self, folder: SweepFolder, name: str) -> None:
        """Raise InputError where Slurm would refuse the job, or where it would be in the way of the sweep's own jobs.

        Nodes where it would be in their way are avoided from here on, as long as there are others.
        """
        compared = len(self._avoid)
        for _ in range(_MOST_NODES):
            offered = offer(shlex.join(self._options(folder, name, None)))
            if not offered.taken:
                break
            if not self._in_the_way(offered.nodes):
                return
            self._avoid = (*self._avoid, offered.nodes)
        if offered.taken or offered.passing:
            return
        another = "site.slurm.head.partition names a partition with other nodes"
        if len(self._avoid) > compared:
            raise InputError(
                f"the sweep's jobs take whole nodes, and the head's job would hold {self._avoid[-1]}, which they need "
                f"({offered.said}): {another}; or leave --detach out"
            )
        if compared:
            raise InputError(
                f"Slurm refuses the head's job ({offered.said}). A fleet's head holds none of the {compared} nodes "
                f"that it compares. If its partition has no other, {another}"
            )
        raise InputError(
            f"Slurm refuses the head's job ({offered.said}): change {self._keys(offered.said)}. To try it by hand: "
            f"{offered.command}"
        )

    def _in_the_way(self, node: str) -> bool:
        """Return whether jobs of the sweep could not start at all while the head holds this node."""
        away = (offer(f"{options} --exclude={node}") for options in self._blocks if node)
        return any(not offered.taken and not offered.passing for offered in away)

    def _keys(self, words: str) -> str:
        """Return the keys that Slurm's words on the head's job are about, with their values."""
        head, slurm, found = self._slurm.head or DetachedHead(), self._slurm, []
        own = {"partition": "partition", "max_minutes": "minutes", "mem_mb": "mem_mb"}
        for key in keys_for(words):
            if key in own and (key == "mem_mb" or getattr(head, own[key]) is not None):
                found.append((f"head.{own[key]}", getattr(head, own[key])))
            else:
                named = "cpu_partition" if key == "partition" and slurm.cpu_apart else key
                found.append((named, getattr(slurm, named)))
        return " or ".join(f"site.slurm.{key}" + ("" if value is None else f"={value}") for key, value in found)

    def start(self, folder: SweepFolder, command: Sequence[str], name: str, after: str | None = None) -> str:
        """Submit a job that becomes `command`, to begin when the job `after` has ended; return its number.

        Raises InputError where the job, or those that it is to submit, could never start; nothing is left in the queue
        then.
        """
        if after is not None and (there := self._successor(name, after)) is not None:
            return there
        submit = ("sbatch", *self._options(folder, name, after), "--wrap", f"exec {shlex.join(command)}")
        try:
            number = ask(*submit, base=for_jobs(os.environ, self._slurm.secrets)).strip().partition(";")[0]
        except AccelsweepError as error:
            if full(str(error)) is None:
                raise
            raise AccelsweepError(f"{error}. Slurm takes the head's job when another job of yours has ended") from None
        if after is None and (why := self._hopeless(number)) is not None:
            ask("scancel", number)
            raise InputError(f"{why}. The head's job {number} is cancelled, and nothing else was submitted")
        return number

    def _hopeless(self, number: str) -> str | None:
        """Return why the head's job could never start, or never submit another one; None where it may."""
        if any(full(offered.said) for offered in map(offer, self._blocks[:1])) and not set(slurm.of_user()) - {number}:
            return (
                "Slurm lets you submit the head's job and no other one beside it: leave --detach out, or take an "
                f"account or a QOS with room for more (site.slurm.account={self._slurm.account}, "
                f"site.slurm.qos={self._slurm.qos})"
            )
        deadline = time.monotonic() + _REASON_SECONDS
        while (state := self.state(number)) is not None and state.waits:
            if slurm.hopeless(state.reason) or (
                slurm.hopeless_alone(state.reason) and not slurm.of_user(slurm.HOLDING)
            ):
                return f"the head's job could never start ({state.reason}): change {self._keys(state.reason)}"
            if state.reason not in ("None", "") or time.monotonic() > deadline:
                return None
            time.sleep(_LOOK_SECONDS)
        return None

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
                return Whereabouts(words, waits=state == "PENDING", reason=reason)
        return None

    def end(self, name: str, say: Callable[[str], None], *, patience_seconds: float) -> None:
        """End the job as Ctrl-C ends a head, or before it begins; cancel it where it takes longer than that."""
        deadline, asked = time.monotonic() + patience_seconds, ""
        while (state := self.state(name)) is not None:
            at_once = state.waits or time.monotonic() > deadline
            command = ["scancel", name] if at_once else shlex.split(self.end_with(name, waits=False))
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

    def end_with(self, name: str, *, waits: bool = False) -> str:
        """Return the command that is Ctrl-C for the head; a job that waits has no process to send a signal to."""
        return shlex.join(("scancel", name) if waits else ("scancel", "--batch", "--signal=INT", name))
