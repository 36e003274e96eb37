"""The jobs of a head's own Snakemake, looked after while it runs.

Some jobs were preempted for good, or Slurm holds them because a node could not start them. The executor plugin (2.8)
would ask after them for ever, so the head makes them run again. It asks for ever, too, after jobs that Slurm forgot
before it looked (`MinJobAge`). Others wait for what no waiting brings. They are named, and left out after
`limits.queue_minutes`.
"""

from __future__ import annotations

import re
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from accelsweep.base.errors import AccelsweepError
from accelsweep.drive.slurm.ask import ask
from accelsweep.drive.slurm.jobs import block_in
from accelsweep.state.folders import SweepFolder
from accelsweep.state.halts import Halt, Why

_ASK_SECONDS = 15.0
_FORGOTTEN_SECONDS = 60.0
_MOST_RELEASES = 3
_COULD_NOT_START = "launch fail"  # "launch failed requeued held", "launch failure limit exceeded requeued held"
_OVER_FOR_GOOD = {"PREEMPTED": "was preempted", "NODE_FAIL": "lost its node"}
"""States that the plugin takes for temporary ones, with words for them."""

_NEVER = re.compile(
    r"Partition(Time|Node)Limit|BadConstraints|Invalid(Account|QOS)|DependencyNeverSatisfied|(Assoc|QOS)\w*PerJob\w*"
    r"|\w*NotAllowed"
)
"""Slurm's reasons, see squeue(1), for which a job waits until its request or the cluster's limits are changed."""


_RULE = re.compile(r"^(?:local)?rule (\w+):$", re.MULTILINE)
_SUBMITTED = "has been submitted with SLURM jobid"


class Row(NamedTuple):
    """A job in squeue's listing: its number, state, reason, and comment."""

    number: str
    state: str
    reason: str
    comment: str


@dataclass
class Queue:
    """The jobs of this head's Snakemake. `update` may be called at any rate; `minutes` is `limits.queue_minutes`."""

    folder: SweepFolder
    say: Callable[[str], None]
    minutes: float | None = None
    clock: Callable[[], float] = time.monotonic
    _asked_at: float | None = None
    _waiting: frozenset[str] = frozenset()
    _since: dict[str, float] = field(default_factory=dict)
    _left_out: set[str] = field(default_factory=set)
    _released: Counter[str] = field(default_factory=Counter)
    _gone_since: float | None = None

    def update(self) -> None:
        """Look after the jobs, if it is time to. Without an answer from Slurm the sweep goes on."""
        if self._asked_at is not None and self.clock() - self._asked_at < _ASK_SECONDS:
            return
        self._asked_at = self.clock()
        log = self.folder.snakemake_log.read_text("utf-8", "replace")
        name = re.search(r"^SLURM run ID: (\S+)", log, re.MULTILINE)
        if name is None:  # Snakemake submits nothing, or has not begun to
            return
        try:
            listing = ask("squeue", "--noheader", "--states=all", "--format=%i|%T|%r|%k", "--name", name[1])
            rows = [Row(*line.split("|", 3)) for line in listing.splitlines()]
            self.look_for_forgotten(log, rows)
            for command, sentence in (*self.remedies(rows), *self.left_out(rows)):
                ask(*command)
                self.say(sentence)
            self.tell_of_waiting(rows)
        except AccelsweepError as error:
            self.say(str(error))

    @property
    def forgotten(self) -> bool:
        """Whether Snakemake waits for jobs that Slurm has known nothing of for a minute."""
        return self._gone_since is not None and self.clock() - self._gone_since >= _FORGOTTEN_SECONDS

    def anew(self) -> Queue:
        """Return the queue of another Snakemake of the same head, with the same blocks left out."""
        return Queue(self.folder, self.say, self.minutes, self.clock, _left_out=self._left_out)

    def look_for_forgotten(self, log: str, rows: list[Row]) -> None:
        """Note since when Slurm knows no job, while a job of a block is the last that Snakemake's `log` tells of."""
        begun = _RULE.findall(log)
        waits = _SUBMITTED in log and bool(begun) and begun[-1].startswith("block")
        self._gone_since = (self._gone_since or self.clock()) if waits and not rows else None

    def remedies(self, rows: list[Row]) -> Iterator[tuple[tuple[str, ...], str]]:
        """Yield the commands that jobs need to run again, with words for the user."""
        for row in rows:
            if row.state in _OVER_FOR_GOOD:
                said = f"job {row.number} {_OVER_FOR_GOOD[row.state]}; it is queued again and goes on where it was"
                yield ("scontrol", "requeue", row.number), said
            elif row.reason.startswith(_COULD_NOT_START):
                self._released[row.number] += 1
                said = f"job {row.number} could not be started ({row.reason})"
                if self._released[row.number] <= _MOST_RELEASES:
                    yield ("scontrol", "release", row.number), f"{said}; released, so that Slurm tries again"
                else:
                    yield ("scancel", row.number), f"{said} for the {self._released[row.number]}th time; cancelled"

    def left_out(self, rows: list[Row]) -> Iterator[tuple[tuple[str, ...], str]]:
        """Yield the commands that cancel jobs which waited too long; their blocks get a halt with the reason.

        Snakemake submits a cancelled job once more. That copy is cancelled at once.
        """
        waiting = {row.number: row for row in rows if row.state == "PENDING"}
        self._since = {number: self._since.get(number, self.clock()) for number in waiting}
        for number, row in waiting.items():
            block = block_in(row.comment)
            if self.minutes is None or block is None:
                continue
            if block not in self._left_out and self.clock() - self._since[number] < 60 * self.minutes:
                continue
            if block not in self._left_out:
                self._left_out.add(block)
                why = Why.waited.format(minutes=self.minutes, reason=row.reason)
                Halt(block=block, why=why).write(self.folder.halt(block))
            yield ("scancel", number), f"job {number} waited too long ({row.reason}); block {block} is left out"

    def tell_of_waiting(self, rows: list[Row]) -> None:
        """Say why jobs wait, whenever the reasons change, and whether waiting can end that."""
        waiting = Counter(row.reason for row in rows if row.state == "PENDING" and row.reason != "None")
        if waiting.keys() != self._waiting:
            self._waiting = frozenset(waiting)
            counts = ", ".join(f"{count} x {reason}" for reason, count in waiting.items())
            self.say(f"jobs wait in Slurm's queue: {counts}" if counts else "no job waits in Slurm's queue any more")
            if never := [reason for reason in waiting if _NEVER.fullmatch(reason)]:
                self.say(f"no waiting ends {' or '.join(never)}: press Ctrl-C, and lower what the site file asks for")
