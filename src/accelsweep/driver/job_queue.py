"""A sweep's cluster jobs: rejected, failed, queued, or left behind by an earlier driver.

Snakemake waits forever for stuck jobs, and for jobs that Slurm forgot (see `MinJobAge`) before Snakemake polled them.
The driver therefore requeues or releases stuck jobs, and restarts Snakemake if its jobs are forgotten. It cancels jobs
that can never start, and any other job still waiting after `limits.queue_minutes`; their blocks are skipped.
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

from accelsweep.config.site import Site
from accelsweep.driver.snakemake_hooks import DEFERRED, FileStamp, file_stamp
from accelsweep.errors import AccelsweepError, DamagedFile, InputError
from accelsweep.files import read_regular, tail_bytes, tail_lines
from accelsweep.records.layout import SweepFolder
from accelsweep.records.not_run_reasons import Halt, StopReason
from accelsweep.records.plan import BLOCK_NAME, Manifest
from accelsweep.redaction import masked
from accelsweep.schedulers.protocol import Job, JobEnd, Remedy, Resources, Scheduler, ask
from accelsweep.schedulers.select import scheduler_of
from accelsweep.significant_digits import count_of


def check_jobs_accepted(site: Site, blocks: Iterable[Resources], warn: Callable[[str], None]) -> None:
    """Raise InputError if the site's scheduler would reject the job of any of these blocks.

    A temporary rejection (the scheduler is unreachable or its queue is full) only causes a warning, because the jobs
    are deferred until the scheduler accepts them.
    """
    if (scheduler := scheduler_of(site)) is None:
        return
    for needs in dict.fromkeys(needs.model_copy(update={"node": None}) for needs in blocks):
        try:
            offer = scheduler.offer(needs)
            temporary = offer.temporary and (not scheduler.queue_limit(offer.message) or scheduler.in_queue() > 0)
        except AccelsweepError as error:
            warn(f"cannot check whether {scheduler.name} accepts the jobs: {error}")
            continue
        if offer.accepted:
            continue
        if temporary:
            warn(f"{scheduler.name} accepts no jobs at present ({offer.message}); they will be submitted once it does")
            continue
        kind = f"{needs.node_kind}: " if needs.node_kind else ""
        raise InputError(
            f"{scheduler.name} refuses a job of {kind}{scheduler.in_words(needs)} ({offer.message}): change "
            f"{describe_keys(site, needs, offer.keys)}. To try it by hand: {offer.command}"
        )


def describe_keys(site: Site, needs: Resources, keys: Sequence[str]) -> str:
    """Return `KEY=VALUE or ...` for the site's job settings that caused a rejection, or a generic phrase."""
    jobs = site.of_kind(needs.node_kind).jobs
    names = [
        "cpu_partition" if key == "partition" and not needs.gpus and jobs.has_cpu_partition else key for key in keys
    ]
    assigned = [f"{site.jobs_key}.{key}={value}" for key in names if (value := getattr(jobs, key)) is not None]
    text = " or ".join(assigned or [f"{site.jobs_key}.{key}" for key in names]) or "what the site file requests"
    return text if needs.node_kind is None or not names else f"{text} (of the kind {needs.node_kind}, or of the site)"


_ERROR = re.compile(r"^Error in rule block\w*:\n(.*?)^(?:Trying to restart|Exiting because|\[\w{3} )", re.M | re.S)

_OUTPUT = re.compile(rf"^    output: \S*/({BLOCK_NAME})\.done\.json", re.MULTILINE)

_MAX_LOG_BYTES = 20_000_000


@dataclass(frozen=True)
class FailedJob:
    """The failed job of a block.

    A `reason` reported by the scheduler (`from_scheduler`) takes precedence over the executor's. A `refused` job would
    be rejected again until something changes.
    """

    block: str
    reason: str
    from_scheduler: bool = True
    refused: bool = False


def record_failed_jobs(folder: SweepFolder, scheduler: Scheduler, log: Path) -> None:
    """Write a halt file for each unfinished block whose job failed, according to Snakemake's `log`.

    An executor's halt file is replaced only if the scheduler itself reports a reason.
    """
    for job in read_failed_jobs(folder, scheduler, log):
        if folder.done(job.block).exists() or not folder.block(job.block).exists():
            continue
        if job.from_scheduler or not folder.halt(job.block).exists():
            halt = Halt(block=job.block, reason=job.reason, retry="changed" if job.refused else "now")
            halt.write(folder.halt(job.block))


def read_failed_jobs(folder: SweepFolder, scheduler: Scheduler, log: Path) -> list[FailedJob]:
    """Return the last failed job of each block in Snakemake's `log`; empty if the log cannot be read.

    Only the end of a very long log is read.
    """
    try:
        text = tail_bytes(log, _MAX_LOG_BYTES).decode("utf-8", "replace")
    except (OSError, DamagedFile):
        return []
    failed = {}
    for paragraph in _ERROR.finditer(text):
        output, end = _OUTPUT.search(paragraph[1]), scheduler.job_end(paragraph[1], folder.home)
        if output is None or end is None:
            continue
        block = output[1]
        if end.refusal is not None:
            failed[block] = _refused_job(scheduler, block, end.refusal)
        else:
            failed[block] = _ended_job(folder, scheduler, block, end)
    return list(failed.values())


def _refused_job(scheduler: Scheduler, block: str, refusal: str) -> FailedJob:
    lines = [line.strip().rstrip(".'") for line in refusal.splitlines() if line.strip()]
    message = masked("; ".join(dict.fromkeys(lines)).replace(":; ", ": ")) or "it gave no reason"
    temporary = scheduler.queue_limit(refusal) or scheduler.is_unreachable(refusal)
    return FailedJob(block, StopReason.refused.format(scheduler=scheduler.name, words=message), refused=not temporary)


def _ended_job(folder: SweepFolder, scheduler: Scheduler, block: str, end: JobEnd) -> FailedJob:
    """Return why a job ended, from the scheduler's messages, the block's log or the job's output, in that order.

    The block's log describes this job only if the job started on a node, in which case the job has a log of its own.
    """
    sources: list[tuple[Sequence[str], Path]] = []
    if end.log and end.log.exists():
        printed, executor = ([line for line in tail_lines(log) if line.strip()] for log in (end.log, folder.log(block)))
        sources = [(scheduler.own_messages(printed), end.log), (executor, folder.log(block)), (printed, end.log)]
    message, log = next(
        ((lines[-1].strip(), log) for lines, log in sources if lines), ("it printed nothing", folder.snakemake_log)
    )
    place = log.relative_to(folder.home) if log.is_relative_to(folder.home) else log
    reason = StopReason.job_ended.format(number=end.number, state=end.state, words=message, log=place)
    return FailedJob(block, reason, from_scheduler=bool(sources and sources[0][0]))


def list_jobs(folder: SweepFolder, scheduler: Scheduler) -> list[Job]:
    """Return the sweep's waiting and running jobs. Raises AccelsweepError if the scheduler does not answer."""
    return scheduler.jobs(folder.home, folder.block_names())


def cancel_jobs(
    folder: SweepFolder, scheduler: Scheduler, say: Callable[[str], None], known: Sequence[str] = ()
) -> None:
    """Cancel the sweep's waiting and running jobs. If that fails, report how to cancel them by hand.

    `known` contains the job numbers that the scheduler listed most recently.
    """
    numbers = list(known)
    try:
        numbers = [job.number for job in list_jobs(folder, scheduler)]
        if numbers:
            ask(*scheduler.cancel(numbers))
    except AccelsweepError as error:
        by_hand = shlex.join(scheduler.cancel(numbers)) if numbers else f"accelsweep status {folder.name} lists them"
        say(f"jobs of {folder.name!r} may still be in {scheduler.name}'s queue ({error}). Cancel them: {by_hand}")


_MIN_POLL_SECONDS = 15.0

_MAX_POLL_SECONDS = 60.0
"""Intervals between polls of the scheduler: the shorter one if a file of the sweep has changed, else the longer one.

The controller is shared by all users of the cluster, so it is polled sparingly. While all jobs are waiting, no file
changes.
"""

_FORGOTTEN_SECONDS = 60.0

_MAX_TRIES = 20
"""The maximum number of attempts at a command that the scheduler rejects."""

_LAST_RULE = re.compile(rf"^(?:(?:local)?rule (\w+):$|{DEFERRED})", re.MULTILINE)

_DEFERRED = re.compile(rf"^{DEFERRED}\w+ \((.+)\)$", re.MULTILINE)

_SUBMITTED = "has been submitted with SLURM jobid"


@dataclass
class JobQueue:
    """The jobs of the driver's current Snakemake process. `queue_minutes` is `limits.queue_minutes`."""

    folder: SweepFolder
    scheduler: Scheduler
    say: Callable[[str], None]
    queue_minutes: float | None = None
    clock: Callable[[], float] = time.monotonic
    _polled_at: float | None = None
    _stamps: list[FileStamp] = field(default_factory=list)
    _states: dict[str, str] = field(default_factory=dict)
    _reasons: frozenset[str] = frozenset()
    _waiting_since: dict[str, float] = field(default_factory=dict)
    _hopeless: set[str] = field(default_factory=set)
    _skipped: dict[str, Halt] = field(default_factory=dict)
    _reported: set[str] = field(default_factory=set)
    _remedies: Counter[str] = field(default_factory=Counter)
    _refused: Counter[tuple[str, ...]] = field(default_factory=Counter)
    _known: list[str] = field(default_factory=list)
    _gone_since: float | None = None

    def for_next_snakemake(self) -> JobQueue:
        """Return a queue for the driver's next Snakemake process that skips the same blocks."""
        return JobQueue(self.folder, self.scheduler, self.say, self.queue_minutes, self.clock, _skipped=self._skipped)

    def update(self) -> None:
        """Poll the scheduler if a poll is due, and handle the jobs. Errors are reported and do not end the sweep."""
        if not self._is_due():
            return
        self._polled_at, self._stamps = self.clock(), self._file_stamps()
        try:
            log = read_regular(self.folder.snakemake_log).decode("utf-8", "replace")
            jobs = self.scheduler.own_jobs(log, self.folder.home, self.folder.block_names())
            if jobs is None:
                return
            self._known = [job.number for job in jobs]
            states = {job.number: job.state for job in jobs}
            if states != self._states:
                self.folder.jobs_changed.touch()  # makes Snakemake poll as well
            self._states = states
            self.detect_forgotten(log, jobs)
            self.report_limit(log)
            self.handle(jobs)
        except (OSError, AccelsweepError) as error:
            self.say_once(f"cannot monitor the jobs in {self.scheduler.name}'s queue: {error}")

    def _is_due(self) -> bool:
        if self._polled_at is None:
            return True
        elapsed = self.clock() - self._polled_at
        # Poll again soon: a job that can never start is checked once more before it is cancelled.
        soon = bool(self._hopeless) or (elapsed >= _MIN_POLL_SECONDS and self._file_stamps() != self._stamps)
        return elapsed >= (_MIN_POLL_SECONDS if soon else _MAX_POLL_SECONDS)

    def _file_stamps(self) -> list[FileStamp]:
        """Return a value that changes whenever a job is submitted, starts, or writes a file of its block."""
        paths = (self.folder.snakemake_log, self.folder.root / "blocks", self.folder.root / "logs")
        return [file_stamp(path) for path in paths]

    def handle(self, jobs: Sequence[Job]) -> None:
        """Restart stuck jobs, cancel those that can never start or have waited too long, and report why others wait."""
        for remedy in itertools.chain(self.remedies(jobs), self.cancellations(jobs)):
            self.apply(remedy)
        self.report_waiting(jobs)

    def apply(self, remedy: Remedy) -> None:
        """Run a remedy's command and report it. A rejected command is reported once and retried a few times."""
        if self._refused[remedy.command] >= _MAX_TRIES:
            return
        try:
            ask(*remedy.command)
        except AccelsweepError as error:
            self._refused[remedy.command] += 1
            self.say_once(f"{error} ({shlex.join(remedy.command)}): trying up to {_MAX_TRIES} times")
        else:
            del self._refused[remedy.command]
            self.say(remedy.message)

    def say_once(self, message: str) -> None:
        """Report this message, but only once."""
        if message not in self._reported:
            self._reported.add(message)
            self.say(message)

    def cancel(self) -> None:
        """Cancel the jobs of an interrupted Snakemake process, which does not do so itself if it was polling them."""
        cancel_jobs(self.folder, self.scheduler, self.say, self._known)

    @property
    def forgotten(self) -> bool:
        """Whether Snakemake is waiting for jobs that Slurm has not listed for a minute."""
        return self._gone_since is not None and self.clock() - self._gone_since >= _FORGOTTEN_SECONDS

    def detect_forgotten(self, log: str, jobs: Sequence[Job]) -> None:
        """Record since when Slurm has listed no jobs although Snakemake's `log` shows that it is waiting for one."""
        rules = _LAST_RULE.findall(log)
        waits = _SUBMITTED in log and bool(rules) and rules[-1].startswith("block")
        self._gone_since = (self._gone_since or self.clock()) if waits and not jobs else None

    def report_limit(self, log: str) -> None:
        """Report why Snakemake defers jobs (once per reason) and how many jobs the scheduler accepted."""
        for reason in dict.fromkeys(_DEFERRED.findall(log)):
            if reason not in self._reported:
                self._reported.add(reason)
                accepted = len(list_jobs(self.folder, self.scheduler))
                hint = f". To set the limit: {self.scheduler.site.jobs_key}.max_jobs={accepted}" if accepted else ""
                self.say(
                    f"{self.scheduler.name} accepted {count_of(accepted, 'job')} of the sweep and refuses more "
                    f"({reason}): the rest will be submitted as jobs end{hint}"
                )

    def remedies(self, jobs: Sequence[Job]) -> Iterator[Remedy]:
        """Yield the commands that make stuck jobs run again."""
        for job in jobs:
            if remedy := self.scheduler.remedy(job, self._remedies[job.number]):
                self._remedies[job.number] += 1
                yield remedy

    def cancellations(self, jobs: Sequence[Job]) -> Iterator[Remedy]:
        """Yield commands to cancel jobs that can never start or have waited too long; write their blocks' halt files.

        No further jobs are started for these blocks in this command. A duplicate submitted by another Snakemake process
        is cancelled immediately.
        """
        waiting = {job.number: job for job in jobs if self.scheduler.waits(job) and job.block}
        self._waiting_since = {number: self._waiting_since.get(number, self.clock()) for number in waiting}
        hopeless = {number for number, job in waiting.items() if self.scheduler.never_starts(job.reason)}
        for number, job in waiting.items():
            # A reason may be stale, so it must persist for two polls.
            is_hopeless = number in hopeless & self._hopeless
            if job.block not in self._skipped and (halt := self._halt(job, is_hopeless=is_hopeless)) is not None:
                self._skipped[job.block] = halt
            if (halt := self._skipped.get(job.block)) is not None:
                halt.write(self.folder.halt(job.block))  # for duplicates too: a new Snakemake starts without halt files
                cause = "can never start" if halt.retry == "changed" else "waited too long"
                message = f"job {number} {cause} ({job.reason}); block {job.block} is skipped"
                yield Remedy(self.scheduler.cancel([number]), message)
        self._hopeless = hopeless

    def _halt(self, job: Job, *, is_hopeless: bool) -> Halt | None:
        """Return why a job has to be cancelled; None if it may wait longer."""
        if is_hopeless:
            blocks = Manifest.read(self.folder.manifest).blocks
            needs = next((block.resources for block in blocks if block.name == job.block), Resources())
            keys = describe_keys(self.scheduler.site, needs, self.scheduler.keys_for(job.reason))
            why = StopReason.hopeless.format(
                number=job.number, scheduler=self.scheduler.name, reason=job.reason, keys=keys
            )
            return Halt(block=job.block, reason=why, retry="changed")
        minutes = self.queue_minutes
        if minutes is not None and self.clock() - self._waiting_since[job.number] >= 60 * minutes:
            why = StopReason.waited.format(minutes=minutes, reason=job.reason, scheduler=self.scheduler.name)
            return Halt(block=job.block, reason=why, retry="later")
        return None

    def report_waiting(self, jobs: Sequence[Job]) -> None:
        """Report why jobs are waiting, with advice, whenever the reasons change."""
        waiting = Counter(job.reason for job in jobs if self.scheduler.waits(job) and job.reason != "None")
        if waiting.keys() != self._reasons:
            self._reasons = frozenset(waiting)
            counts = ", ".join(f"{count} x {reason}" for reason, count in waiting.items())
            queue = f"in {self.scheduler.name}'s queue"
            self.say(f"jobs are waiting {queue}: {counts}" if counts else f"no more jobs are waiting {queue}")
            for advice in filter(None, map(self.scheduler.advice, waiting)):
                self.say(advice)


_EARLIER_POLL_SECONDS = 5.0

_UNREACHABLE_SECONDS = 900.0
"""How long the scheduler may be unreachable before the driver gives up; restarting a controller takes minutes."""


def wait_for_earlier_jobs(
    queue: JobQueue, *, cancel: bool, on_poll: Callable[[], None] = lambda: None, deadline: float | None = None
) -> None:
    """Wait until all jobs of an earlier driver have ended; if `cancel` is set, cancel them.

    The jobs start no further runs after `deadline` (by the queue's clock). `on_poll` is called at each poll. Raises
    AccelsweepError if the scheduler does not answer for 15 minutes.
    """
    if not queue.folder.block_names():
        return
    seen: set[str] = set()
    answered_at = queue.clock()
    while True:
        expired = deadline is not None and queue.clock() >= deadline
        try:
            if not (jobs := list_jobs(queue.folder, queue.scheduler)):
                return
            for job in jobs:
                if job.number not in seen:
                    queue.say(f"left by an earlier driver: {job}; {'cancelling' if cancel else 'waiting for'} it")
            seen |= {job.number for job in jobs}
            if cancel:
                ask(*queue.scheduler.cancel([job.number for job in jobs]))
            else:
                _handle_earlier_jobs(queue, jobs, expired=expired)
            answered_at = queue.clock()
        except AccelsweepError as error:
            if queue.clock() - answered_at >= _UNREACHABLE_SECONDS:
                raise
            queue.say_once(f"{error}; retrying for {_UNREACHABLE_SECONDS / 60:.0f} minutes")
        on_poll()
        time.sleep(_EARLIER_POLL_SECONDS / 5 if cancel else _EARLIER_POLL_SECONDS)


def _handle_earlier_jobs(queue: JobQueue, jobs: Sequence[Job], *, expired: bool) -> None:
    """Cancel waiting jobs that can never start (all if the time budget has `expired`); handle the rest as usual."""
    if expired and not queue.folder.stop.exists():
        queue.folder.stop.touch()
        queue.say("the time budget is spent: no further runs will be started")
    scheduler = queue.scheduler
    useless = [job for job in jobs if scheduler.waits(job) and (expired or scheduler.never_starts(job.reason))]
    for job in useless:
        reason = "the time budget is spent" if expired else f"waiting does not resolve {job.reason}"
        message = f"job {job.number} of an earlier driver: {reason}; cancelled"
        queue.apply(Remedy(scheduler.cancel([job.number]), message))
    queue.handle([job for job in jobs if job not in useless])
