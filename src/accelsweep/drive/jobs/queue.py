"""The jobs of a head's own Snakemake, looked after while it runs.

Some jobs stand where Snakemake would ask after them for ever, so the head makes them run again. It asks for ever, too,
after jobs that Slurm forgot before it looked (`MinJobAge`). Others wait for what no waiting brings: they are named, and
left out at once. The rest is left out after `limits.queue_minutes`.
"""

from __future__ import annotations

import itertools
import re
import shlex
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from accelsweep.base.digits import count_of
from accelsweep.base.documents import read_whole
from accelsweep.base.errors import AccelsweepError
from accelsweep.core.planned.plans import Manifest, Resources
from accelsweep.drive.jobs.failures import keys_in_words
from accelsweep.drive.jobs.listed import cancel_jobs, jobs_of
from accelsweep.drive.jobs.retries import HELD_BACK
from accelsweep.engines.ask import ask
from accelsweep.engines.engine import Engine, Job, Remedy
from accelsweep.state.folders import SweepFolder
from accelsweep.state.halts import Halt, Why

_SOONEST_SECONDS = 15.0
_LATEST_SECONDS = 60.0
"""The engine is asked so often: soon where a file of the sweep tells that something happened, else once a minute.

A cluster's controller serves everybody. While all jobs wait, no file changes.
"""
_FORGOTTEN_SECONDS = 60.0
_MOST_REFUSALS = 20
"""So often the engine may refuse one command, before it is no more asked for."""

_LAST = re.compile(rf"^(?:(?:local)?rule (\w+):$|{HELD_BACK})", re.MULTILINE)
_HELD_BACK = re.compile(rf"^{HELD_BACK}\w+ \((.+)\)$", re.MULTILINE)
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
    _signs: object = None
    _states: dict[str, str] = field(default_factory=dict)
    _waiting: frozenset[str] = frozenset()
    _since: dict[str, float] = field(default_factory=dict)
    _hopeless: set[str] = field(default_factory=set)
    _left_out: dict[str, Halt] = field(default_factory=dict)
    _told: set[str] = field(default_factory=set)
    _limits: set[str] = field(default_factory=set)
    _tried: Counter[str] = field(default_factory=Counter)
    _refused: Counter[tuple[str, ...]] = field(default_factory=Counter)
    _known: list[str] = field(default_factory=list)
    _gone_since: float | None = None

    def update(self) -> None:
        """Look after the jobs, if it is time to. Without an answer from the engine the sweep goes on."""
        if self.engine is None or not self._due():
            return
        self._asked_at, self._signs = self.clock(), self._look_for_signs()
        try:
            log = read_whole(self.folder.snakemake_log).decode("utf-8", "replace")
            found = self.engine.own_jobs(log, self.folder.home, self.folder.block_names())
            if found is None:
                return
            self._known = [job.number for job in found]
            self._note_changes(found)
            self.look_for_forgotten(log, found)
            self.tell_of_limit(self.engine, log)
            self.look_after(self.engine, found)
        except (OSError, AccelsweepError) as error:
            self.tell_once(f"the jobs in {self.engine.name}'s queue are not looked after: {error}")

    def _due(self) -> bool:
        if self._asked_at is None:
            return True
        waited = self.clock() - self._asked_at
        # A reason that no waiting ends is looked at once more, before the job is given up.
        soon = bool(self._hopeless) or (waited >= _SOONEST_SECONDS and self._look_for_signs() != self._signs)
        return waited >= (_SOONEST_SECONDS if soon else _LATEST_SECONDS)

    def _look_for_signs(self) -> object:
        """Return what changes whenever a job was submitted, began, or left a file of its block."""
        return [
            path.stat().st_mtime_ns if path.exists() else None
            for path in (self.folder.snakemake_log, self.folder.root / "blocks", self.folder.root / "logs")
        ]

    def _note_changes(self, jobs: Sequence[Job]) -> None:
        """Tell Snakemake, which asks about its jobs when this file was touched, that one of them has changed."""
        states = {job.number: job.state for job in jobs}
        if states != self._states:
            self.folder.jobs_changed.touch()
        self._states = states

    def look_after(self, engine: Engine, jobs: Sequence[Job]) -> None:
        """Set going what stands, leave out what waited too long, and say why the rest waits."""
        for remedy in itertools.chain(self.remedies(engine, jobs), self.left_out(engine, jobs)):
            self.carry_out(remedy)
        self.tell_of_waiting(engine, jobs)

    def carry_out(self, remedy: Remedy) -> None:
        """Do what a job needs, and say so. A refused command is told once, and given up after some tries."""
        if self._refused[remedy.command] >= _MOST_REFUSALS:
            return
        try:
            ask(*remedy.command)
        except AccelsweepError as error:
            self._refused[remedy.command] += 1
            self.tell_once(f"{error} ({shlex.join(remedy.command)}): trying it {_MOST_REFUSALS} times")
        else:
            del self._refused[remedy.command]
            self.say(remedy.said)

    def tell_once(self, sentence: str) -> None:
        """Say what went wrong, the first time."""
        if sentence not in self._told:
            self._told.add(sentence)
            self.say(sentence)

    def cancel_left(self) -> None:
        """Cancel the jobs that an interrupted Snakemake left: it cancels none while it asks after their states."""
        if self.engine is not None:
            cancel_jobs(self.folder, self.engine, self.say, self._known)

    @property
    def forgotten(self) -> bool:
        """Whether Snakemake waits for jobs that Slurm has known nothing of for a minute."""
        return self._gone_since is not None and self.clock() - self._gone_since >= _FORGOTTEN_SECONDS

    def anew(self) -> Queue:
        """Return the queue of another Snakemake of the same head, with the same blocks left out."""
        return Queue(self.folder, self.engine, self.say, self.minutes, self.clock, _left_out=self._left_out)

    def look_for_forgotten(self, log: str, jobs: Sequence[Job]) -> None:
        """Note since when Slurm knows no job, while a job of a block is the last that Snakemake's `log` tells of."""
        begun = _LAST.findall(log)
        waits = _SUBMITTED in log and bool(begun) and begun[-1].startswith("block")
        self._gone_since = (self._gone_since or self.clock()) if waits and not jobs else None

    def tell_of_limit(self, engine: Engine, log: str) -> None:
        """Say once why jobs are held back, by Snakemake's `log`, and how many jobs the engine took."""
        for why in dict.fromkeys(_HELD_BACK.findall(log)):
            if why not in self._limits:
                self._limits.add(why)
                taken = len(jobs_of(self.folder, engine))
                limit = f". To state it: {engine.site.jobs_key}.max_jobs={taken}" if taken else ""
                self.say(
                    f"{engine.name} took {count_of(taken, 'job')} of the sweep and no further one ({why}): the rest is "
                    f"submitted as jobs end{limit}"
                )

    def remedies(self, engine: Engine, jobs: Sequence[Job]) -> Iterator[Remedy]:
        """Yield the commands that jobs need to run again, with words for the user."""
        for job in jobs:
            if remedy := engine.remedy(job, self._tried[job.number]):
                self._tried[job.number] += 1
                yield remedy

    def left_out(self, engine: Engine, jobs: Sequence[Job]) -> Iterator[Remedy]:
        """Yield the commands that cancel jobs which can never start, or waited too long; their blocks get a halt.

        Such a block gets no further job in this command. A copy that another Snakemake submits is cancelled at once.
        """
        waiting = {job.number: job for job in jobs if engine.waits(job) and job.block}
        self._since = {number: self._since.get(number, self.clock()) for number in waiting}
        hopeless = {number for number, job in waiting.items() if engine.hopeless(job.reason)}
        for number, job in waiting.items():
            if job.block not in self._left_out and (halt := self._halt(engine, job, hopeless)) is not None:
                self._left_out[job.block] = halt
            if job.block in self._left_out:
                # again for a copy: what a head finds when it begins is cleared away before it submits
                halt = self._left_out[job.block]
                halt.write(self.folder.halt(job.block))
                cause = "can never start" if halt.again == "changed" else "waited too long"
                said = f"job {number} {cause} ({job.reason}); block {job.block} is left out"
                yield Remedy(engine.cancel([number]), said)
        self._hopeless = hopeless

    def _halt(self, engine: Engine, job: Job, hopeless: set[str]) -> Halt | None:
        """Return what to note of a job that is to be left out; None for one that may wait on.

        The engine may tell a reason that is no longer true. So it has to stand at two looks.
        """
        if job.number in hopeless & self._hopeless:
            keys = keys_in_words(engine.site, self._needs(job.block), engine.keys_for(job.reason))
            why = Why.hopeless.format(number=job.number, engine=engine.name, reason=job.reason, keys=keys)
            return Halt(block=job.block, why=why, again="changed")
        if self.minutes is not None and self.clock() - self._since[job.number] >= 60 * self.minutes:
            why = Why.waited.format(minutes=self.minutes, reason=job.reason, engine=engine.name)
            return Halt(block=job.block, why=why, again="later")
        return None

    def _needs(self, block: str) -> Resources:
        blocks = Manifest.read(self.folder.manifest).blocks
        return next((one.resources for one in blocks if one.name == block), Resources())

    def tell_of_waiting(self, engine: Engine, jobs: Sequence[Job]) -> None:
        """Say why jobs wait, whenever the reasons change, and whether waiting can end that."""
        waiting = Counter(job.reason for job in jobs if engine.waits(job) and job.reason != "None")
        if waiting.keys() != self._waiting:
            self._waiting = frozenset(waiting)
            counts = ", ".join(f"{count} x {reason}" for reason, count in waiting.items())
            queue = f"in {engine.name}'s queue"
            self.say(f"jobs wait {queue}: {counts}" if counts else f"no job waits {queue} any more")
            for sentence in filter(None, map(engine.advice, waiting)):
                self.say(sentence)
