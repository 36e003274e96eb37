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
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from accelsweep.config.site import Site
from accelsweep.driver.job_retries import HELD_BACK
from accelsweep.errors import AccelsweepError, DamagedFile, InputError
from accelsweep.files import read_regular, tail_bytes, tail_lines
from accelsweep.records.layout import SweepFolder
from accelsweep.records.plan import BLOCK_NAME, Manifest
from accelsweep.records.stop_reasons import Halt, Why
from accelsweep.redaction import masked
from accelsweep.schedulers.protocol import Engine, Job, JobEnd, Remedy, Resources, ask
from accelsweep.schedulers.select import engine_of
from accelsweep.significant_digits import count_of

# Jobs that an engine refuses, or that ended before their block did: why, in the engine's own words or the shell's.

_PARAGRAPH = re.compile(r"^Error in rule block\w*:\n(.*?)^(?:Trying to restart|Exiting because|\[\w{3} )", re.M | re.S)

_BLOCK = re.compile(rf"^    output: \S*/({BLOCK_NAME})\.done\.json", re.MULTILINE)

_MOST_BYTES = 20_000_000


@dataclass(frozen=True)
class Failure:
    """The end of a block's job: why, and whether these are the engine's words, which count more than a supervisor's.

    A job that the engine `refused` is refused again until something is changed.
    """

    block: str
    why: str
    of_engine: bool = True
    refused: bool = False


def refuse_before_submission(site: Site, blocks: Iterable[Resources], warn: Callable[[str], None]) -> None:
    """Ask the site's engine whether it would take the jobs of these blocks; raise InputError where it refuses any.

    A refusal that ends by itself, because the engine is away or full, is a warning: the jobs wait for that.
    """
    if (engine := engine_of(site)) is None:
        return
    for needs in dict.fromkeys(needs.model_copy(update={"node": None}) for needs in blocks):
        refuse_untaken(site, needs, engine, warn)


def refuse_untaken(site: Site, needs: Resources, engine: Engine, warn: Callable[[str], None]) -> None:
    """Raise InputError where the engine would not take such a job; `warn` of a refusal that ends by itself."""
    try:
        offer = engine.offer(needs)
        held_up = offer.passing and (not engine.queue_limit(offer.said) or engine.in_queue() > 0)
    except AccelsweepError as error:
        warn(f"whether {engine.name} takes the jobs was not asked: {error}")
        return
    if offer.taken:
        return
    if held_up:
        warn(f"{engine.name} takes no job now ({offer.said}); the jobs are submitted when it does")
        return
    kind = f"{needs.node_kind}: " if needs.node_kind else ""
    raise InputError(
        f"{engine.name} refuses a job of {kind}{engine.in_words(needs)} ({offer.said}): change "
        f"{keys_in_words(site, needs, offer.keys)}. To try it by hand: {offer.command}"
    )


def keys_in_words(site: Site, needs: Resources, keys: Sequence[str]) -> str:
    """Return the keys that a refusal is about with their values, as a user writes them; else the site file."""
    jobs = site.of_kind(needs.node_kind).jobs
    named = [
        ("cpu_partition" if key == "partition" and not needs.gpus and jobs.has_cpu_partition else key) for key in keys
    ]
    stated = [f"{site.jobs_key}.{key}={value}" for key in named if (value := getattr(jobs, key)) is not None]
    found = " or ".join(stated or [f"{site.jobs_key}.{key}" for key in named]) or "what the site file asks for"
    return found if needs.node_kind is None or not named else f"{found} (of the kind {needs.node_kind}, or of the site)"


def note_failed_jobs(folder: SweepFolder, engine: Engine, log: Path) -> None:
    """Leave a halt beside each block without an end whose job failed, by Snakemake's `log`.

    A halt that a supervisor left stands, unless the engine itself says why the job ended.
    """
    for failure in failures(folder, engine, log):
        if folder.done(failure.block).exists() or not folder.block(failure.block).exists():
            continue
        if failure.of_engine or not folder.halt(failure.block).exists():
            again: Literal["now", "changed"] = "changed" if failure.refused else "now"
            Halt(block=failure.block, why=failure.why, again=again).write(folder.halt(failure.block))


def failures(folder: SweepFolder, engine: Engine, log: Path) -> list[Failure]:
    """Return the last failure of each block that Snakemake's `log` tells of; none where it cannot be read.

    Of a log that is very long, only the end is read.
    """
    try:
        text = tail_bytes(log, _MOST_BYTES).decode("utf-8", "replace")
    except (OSError, DamagedFile):
        return []
    return list({failure.block: failure for failure in _failures(folder, engine, text)}.values())


def _failures(folder: SweepFolder, engine: Engine, text: str) -> Iterator[Failure]:
    for found in _PARAGRAPH.finditer(text):
        block, end = _BLOCK.search(found[1]), engine.job_end(found[1], folder.home)
        if block is None or end is None:
            continue
        if end.refusal is not None:
            why = Why.refused.format(engine=engine.name, words=_in_one_line(end.refusal))
            yield Failure(
                block[1], why, refused=not (engine.queue_limit(end.refusal) or engine.is_unreachable(end.refusal))
            )
        else:
            yield _of_a_job(folder, engine, block[1], end)


def _of_a_job(folder: SweepFolder, engine: Engine, block: str, end: JobEnd) -> Failure:
    """Return why a job ended, and the log that has the words.

    The engine's own words count most, then those of the block, then whatever else the job printed. A job ran on a node
    only where its log is there, and the block's log is about it only then.
    """
    printed = [line for line in tail_lines(end.log) if line.strip()] if end.log and end.log.exists() else []
    said = engine.own_messages(printed)
    own = [line for line in tail_lines(folder.log(block)) if line.strip()] if end.log and end.log.exists() else []
    sources = [(said, end.log), (own, folder.log(block)), (printed, end.log)]
    words, log = next(((lines[-1], log) for lines, log in sources if lines), ("it left no word", folder.snakemake_log))
    log = log or folder.snakemake_log
    where = log.relative_to(folder.home) if log.is_relative_to(folder.home) else log
    why = Why.job_ended.format(number=end.number, state=end.state, words=words.strip(), log=where)
    return Failure(block, why, of_engine=bool(said))


def _in_one_line(text: str) -> str:
    lines = [line.strip().rstrip(".'") for line in text.splitlines() if line.strip()]
    return masked("; ".join(dict.fromkeys(lines)).replace(":; ", ": ")) or "it gave no reason"


# The jobs of a sweep that its engine lists, and their end.


def jobs_of(folder: SweepFolder, engine: Engine) -> list[Job]:
    """Return the sweep's jobs that wait or run. Raises AccelsweepError if the engine does not answer."""
    return engine.jobs(folder.home, folder.block_names())


def cancel_jobs(folder: SweepFolder, engine: Engine, say: Callable[[str], None], known: Sequence[str] = ()) -> None:
    """Cancel the sweep's jobs that wait or run. Where that fails, say why, and how to end them by hand.

    `known` are the numbers that the engine named last.
    """
    numbers = list(known)
    try:
        numbers = [job.number for job in jobs_of(folder, engine)]
        if numbers:
            ask(*engine.cancel(numbers))
    except AccelsweepError as error:
        by_hand = shlex.join(engine.cancel(numbers)) if numbers else f"accelsweep status {folder.name} lists them"
        say(f"jobs of {folder.name!r} may be left in {engine.name}'s queue ({error}). End them: {by_hand}")


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
            log = read_regular(self.folder.snakemake_log).decode("utf-8", "replace")
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
        hopeless = {number for number, job in waiting.items() if engine.never_starts(job.reason)}
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


# The jobs that an earlier head left behind.

_LOOK_SECONDS = 5.0

_SILENCE_SECONDS = 900.0
"""The engine may fail to answer for so long before the head gives up: a controller that starts again takes minutes."""


def settle_old_jobs(
    queue: Queue, *, cancel: bool, watch: Callable[[], None] = lambda: None, deadline: float | None = None
) -> None:
    """Return when no job of an earlier head is left; `cancel` ends these jobs, otherwise they are waited for.

    No run of them begins after `deadline`, on the queue's clock. `watch` is called now and then while it waits. Raises
    AccelsweepError where the engine does not answer for a quarter of an hour.
    """
    if queue.engine is None or not queue.folder.block_names():
        return
    told: set[str] = set()
    heard_at = queue.clock()
    while True:
        late = deadline is not None and queue.clock() >= deadline
        try:
            if not (old := jobs_of(queue.folder, queue.engine)):
                return
            _tell(queue, old, told, cancel=cancel)
            if cancel:
                ask(*queue.engine.cancel([job.number for job in old]))
            else:
                _look_after(queue, queue.engine, old, late=late)
            heard_at = queue.clock()
        except AccelsweepError as error:
            if queue.clock() - heard_at >= _SILENCE_SECONDS:
                raise
            queue.tell_once(f"{error}; asking again for {_SILENCE_SECONDS / 60:.0f} minutes")
        watch()
        time.sleep(_LOOK_SECONDS / 5 if cancel else _LOOK_SECONDS)


def _tell(queue: Queue, old: Sequence[Job], told: set[str], *, cancel: bool) -> None:
    for job in old:
        if job.number not in told:
            queue.say(f"left by an earlier head: {job}; " + ("cancelling it" if cancel else "waiting for it"))
    told |= {job.number for job in old}


def _look_after(queue: Queue, engine: Engine, old: Sequence[Job], *, late: bool) -> None:
    """Cancel what need not be waited for, because it cannot start or is `late`, and see to the rest."""
    if late and not queue.folder.stop.exists():
        queue.folder.stop.touch()
        queue.say("the time budget is spent: no further run is started")
    vain = [job for job in old if engine.waits(job) and (late or engine.never_starts(job.reason))]
    for job in vain:
        why = "the time budget is spent" if late else f"no waiting ends {job.reason}"
        queue.carry_out(Remedy(engine.cancel([job.number]), f"job {job.number} of an earlier head: {why}; cancelled"))
    queue.look_after(engine, [job for job in old if job not in vain])
