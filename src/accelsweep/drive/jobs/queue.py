"""The jobs of a head's own Snakemake, looked after while it runs.

Some jobs stand where Snakemake would ask after them for ever, so the head makes them run again. It asks for ever, too,
after jobs that Slurm forgot before it looked (`MinJobAge`). Others wait for what no waiting brings. They are named, and
left out after `limits.queue_minutes`.
"""

from __future__ import annotations

import re
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from accelsweep.base.errors import AccelsweepError
from accelsweep.drive.jobs.settle import block_names, cancel_jobs
from accelsweep.engines.ask import ask
from accelsweep.engines.engine import Engine, Job, Remedy
from accelsweep.state.folders import SweepFolder
from accelsweep.state.halts import Halt, Why

_ASK_SECONDS = 15.0
_FORGOTTEN_SECONDS = 60.0

_RULE = re.compile(r"^(?:local)?rule (\w+):$", re.MULTILINE)
_SUBMITTED = "has been submitted with SLURM jobid"


@dataclass
class Queue:
    """The jobs of this head's Snakemake. `update` may be called at any rate; `minutes` is `limits.queue_minutes`.

    Without an `engine` there are none.
    """

    folder: SweepFolder
    engine: Engine | None
    say: Callable[[str], None]
    minutes: float | None = None
    clock: Callable[[], float] = time.monotonic
    _asked_at: float | None = None
    _waiting: frozenset[str] = frozenset()
    _since: dict[str, float] = field(default_factory=dict)
    _left_out: set[str] = field(default_factory=set)
    _tried: Counter[str] = field(default_factory=Counter)
    _gone_since: float | None = None

    def update(self) -> None:
        """Look after the jobs, if it is time to. Without an answer from the engine the sweep goes on."""
        if self.engine is None or (self._asked_at is not None and self.clock() - self._asked_at < _ASK_SECONDS):
            return
        self._asked_at = self.clock()
        log = self.folder.snakemake_log.read_text("utf-8", "replace")
        try:
            found = self.engine.own_jobs(log, self.folder.home, block_names(self.folder))
            if found is None:
                return
            self.look_for_forgotten(log, found)
            for command, sentence in (*self.remedies(self.engine, found), *self.left_out(self.engine, found)):
                ask(*command)
                self.say(sentence)
            self.tell_of_waiting(self.engine, found)
        except AccelsweepError as error:
            self.say(str(error))

    def cancel_left(self) -> None:
        """Cancel the jobs that an interrupted Snakemake left: it cancels none while it asks after their states."""
        if self.engine is not None:
            cancel_jobs(self.folder, self.engine)

    @property
    def forgotten(self) -> bool:
        """Whether Snakemake waits for jobs that Slurm has known nothing of for a minute."""
        return self._gone_since is not None and self.clock() - self._gone_since >= _FORGOTTEN_SECONDS

    def anew(self) -> Queue:
        """Return the queue of another Snakemake of the same head, with the same blocks left out."""
        return Queue(self.folder, self.engine, self.say, self.minutes, self.clock, _left_out=self._left_out)

    def look_for_forgotten(self, log: str, jobs: Sequence[Job]) -> None:
        """Note since when Slurm knows no job, while a job of a block is the last that Snakemake's `log` tells of."""
        begun = _RULE.findall(log)
        waits = _SUBMITTED in log and bool(begun) and begun[-1].startswith("block")
        self._gone_since = (self._gone_since or self.clock()) if waits and not jobs else None

    def remedies(self, engine: Engine, jobs: Sequence[Job]) -> Iterator[Remedy]:
        """Yield the commands that jobs need to run again, with words for the user."""
        for job in jobs:
            if remedy := engine.remedy(job, self._tried[job.number]):
                self._tried[job.number] += 1
                yield remedy

    def left_out(self, engine: Engine, jobs: Sequence[Job]) -> Iterator[Remedy]:
        """Yield the commands that cancel jobs which waited too long; their blocks get a halt with the reason.

        Snakemake submits a cancelled job once more. That copy is cancelled at once.
        """
        waiting = {job.number: job for job in jobs if engine.waits(job)}
        self._since = {number: self._since.get(number, self.clock()) for number in waiting}
        for number, job in waiting.items():
            if self.minutes is None or not job.block:
                continue
            if job.block not in self._left_out and self.clock() - self._since[number] < 60 * self.minutes:
                continue
            if job.block not in self._left_out:
                self._left_out.add(job.block)
                why = Why.waited.format(minutes=self.minutes, reason=job.reason, engine=engine.name)
                Halt(block=job.block, why=why).write(self.folder.halt(job.block))
            said = f"job {number} waited too long ({job.reason}); block {job.block} is left out"
            yield Remedy(engine.cancel([number]), said)

    def tell_of_waiting(self, engine: Engine, jobs: Sequence[Job]) -> None:
        """Say why jobs wait, whenever the reasons change, and whether waiting can end that."""
        waiting = Counter(job.reason for job in jobs if engine.waits(job) and job.reason != "None")
        if waiting.keys() != self._waiting:
            self._waiting = frozenset(waiting)
            counts = ", ".join(f"{count} x {reason}" for reason, count in waiting.items())
            queue = f"in {engine.name}'s queue"
            self.say(f"jobs wait {queue}: {counts}" if counts else f"no job waits {queue} any more")
            if never := [reason for reason in waiting if engine.hopeless(reason)]:
                self.say(f"no waiting ends {' or '.join(never)}: press Ctrl-C, and lower what the site file asks for")
