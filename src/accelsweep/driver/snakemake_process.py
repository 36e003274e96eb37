"""Runs Snakemake to completion alongside a publisher, and restarts it if Slurm has forgotten its jobs."""

from __future__ import annotations

import itertools
import json
import os
import re
import signal
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from accelsweep.driver.background_processes import (
    ChildProcess,
    finish_publishing,
    publisher_warnings,
    start_publisher,
)
from accelsweep.driver.console import say, warn
from accelsweep.driver.finalize import finalize
from accelsweep.driver.job_queue import JobQueue
from accelsweep.driver.progress_display import FirstFailures, SweepProgress
from accelsweep.driver.snakefile_functions import find_profile
from accelsweep.errors import EXIT_INCOMPLETE, EXIT_INTERRUPTED
from accelsweep.files import tail_lines
from accelsweep.installation import shipped_root
from accelsweep.records.file_lock import live_lock
from accelsweep.records.layout import SweepFolder
from accelsweep.records.not_run_reasons import Halt, StopReason
from accelsweep.records.plan import Manifest
from accelsweep.redaction import masked
from accelsweep.run_config import Run
from accelsweep.schedulers.job_environment import without_options
from accelsweep.schedulers.select import scheduler_of
from accelsweep.signals import DriverEvicted, JobCancelled

if TYPE_CHECKING:
    from accelsweep.planning.plan import Plan

_SHARED_FILES = ("persistence", "input-output", "software-deployment", "sources", "storage-local-copies")
"""What Snakemake's jobs share through the file system: everything except the source cache (an empty folder in HOME)."""


def snakemake_options(plan: Plan, profile: str, jobs: int | None) -> list[str]:
    """Return Snakemake's options for a plan. `jobs` limits its concurrent jobs; None uses the site's limit."""
    options = ["--profile", str(find_profile(profile))]
    site = plan.manifest.site
    scheduler = scheduler_of(site)
    jobs = jobs or (site.jobs.max_jobs if scheduler else None)
    options += ["--jobs", str(jobs)] if jobs else []
    options += scheduler.options(plan.manifest.sweep) if scheduler else []
    slots = max((setting.config.measure.concurrency for setting in plan.settings), default=1)
    if site.scheduler == "local" and slots > 1:
        options += ["--resources", f"timing={slots}"]
    return options


class SnakemakeStarter:
    """Starts the Snakemake processes of a command. The first one can be started ahead of time, for its imports."""

    def __init__(self, home: Path) -> None:
        """No process is started yet. All processes run in `home`."""
        self._home = home
        self._ahead: _WaitingSnakemake | None = None

    def import_ahead(self) -> None:
        """Start a process that imports Snakemake's modules while this command waits for something else."""
        if self._ahead is None:
            self._ahead = _WaitingSnakemake(self._home, Path(os.devnull))

    def start(self, folder: SweepFolder, options: Sequence[str], temporary: Path | None = None) -> ChildProcess:
        """Start Snakemake on the written plan; `temporary` is the folder for its temporary files, if not the default.

        If the process that was started ahead has died, another one takes its place.
        """
        log = folder.snakemake_log
        log.parent.mkdir(parents=True, exist_ok=True)
        log.write_bytes(b"")
        ahead, self._ahead = self._ahead, None
        # The folder is part of the sweep's name, because Snakemake parses a bare 1e3 or 007 as a number.
        told = {
            "options": [*_OPTIONS, *options, "--config", f"sweep=sweeps/{folder.name}", "--", "results"],
            "environment": _environment(),
            "log": str(log),
            "temporary": None if temporary is None else str(temporary),
        }
        if ahead is None or not ahead.tell(told):
            ahead = _WaitingSnakemake(self._home, log)
            ahead.tell(told)  # if it has died, its log says why
        return ahead.process

    def __enter__(self) -> Self:
        """Return this object."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._ahead is not None:
            self._ahead.abandon()


class _WaitingSnakemake:
    """A process that has imported Snakemake's modules and waits to be told what to run (see `snakemake_main`)."""

    def __init__(self, home: Path, log: Path) -> None:
        read_end, self._write_end = os.pipe()
        command = [sys.executable, "-P", "-m", "accelsweep.driver.snakemake_main", str(read_end)]
        try:
            self.process = ChildProcess(command, cwd=home, log=log, environment=_environment(), descriptors=(read_end,))
        finally:
            os.close(read_end)

    def tell(self, what: Mapping[str, Any]) -> bool:
        """Tell the process what to run; return whether it was still there."""
        try:
            with os.fdopen(self._write_end, "w", encoding="utf-8") as pipe:
                pipe.write(f"{json.dumps(what)}\n")
        except BrokenPipeError:
            return False
        return True

    def abandon(self) -> None:
        """End the process without having told it anything."""
        os.close(self._write_end)
        self.process.kill()


_OPTIONS = (
    *("--snakefile", str(shipped_root() / "Snakefile")),
    "--nolock",
    *("--workflow-profile", "none"),  # otherwise it would use profiles/default in the user's folder
    *("--shared-fs-usage", *_SHARED_FILES),
)


def _environment() -> dict[str, str]:
    """Return the environment of Snakemake and of the processes that it starts, to which its own `-P` does not apply."""
    return {**without_options(os.environ), "PYTHONSAFEPATH": "1"}


_POLL_SECONDS = 0.5

_EXECUTORS_END_SECONDS = 60.0


@dataclass
class SnakemakeRunner:
    """Runs a driver's Snakemake processes one after another; there may be several, because a plan can grow.

    `queue` is None if there is no scheduler; each Snakemake process uses a fresh queue derived from it. If the first
    settings all fail in the same way, the rest are skipped and `abort_reason` is set, unless `keep_going` is set.
    `on_progress` is called twice a second. No run starts after `deadline` (monotonic clock). `temporary` is the folder
    for Snakemake's temporary files, and `starter` starts the processes.
    """

    folder: SweepFolder
    queue: JobQueue | None
    profile: str
    jobs: int | None
    tracking_uri: str | None
    deadline: float | None
    on_progress: Callable[[SweepProgress], None]
    temporary: Path | None
    starter: SnakemakeStarter
    keep_going: bool = False
    abort_reason: str | None = None
    _first_failures: FirstFailures = field(init=False)
    _warned: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        """Start with no failures."""
        self._first_failures = FirstFailures(self.folder)

    def run(self, plan: Plan) -> int:
        """Run Snakemake until every run of the written plan has been attempted; return its exit code.

        A run that kills its executor also ends its block. Snakemake is then restarted for the rest of the block, as
        long as each pass uses up an attempt at some run; a run is attempted at most twice.
        """
        options, crashed = snakemake_options(plan, self.profile, self.jobs), self._crashed_attempts()
        while True:
            queue = self.queue.for_next_snakemake() if self.queue else None
            code = self._run_once(options, queue)
            newly_crashed = self._crashed_attempts() - crashed
            crashed |= newly_crashed
            self._abort_if_all_crash(crashed)
            if self.abort_reason and code != EXIT_INTERRUPTED:
                self._finish_aborted(self.abort_reason)
                return EXIT_INCOMPLETE
            restart = newly_crashed or (queue is not None and queue.forgotten)
            if code <= 0 or code == EXIT_INTERRUPTED or self.folder.stop.exists() or not restart:
                return code
            for run in sorted(mark.parents[2].name for mark in newly_crashed):
                say(f"{run} killed its executor: the other runs of its block are measured first")

    def _crashed_attempts(self) -> set[Path]:
        """Return the marker files of attempts whose executors died without recording them."""
        living = {lock.run for lock in map(live_lock, self.folder.locks()) if lock is not None}
        return {mark for mark in self.folder.open_attempts() if mark.parents[2].name not in living}

    def _abort_if_all_crash(self, marks: set[Path]) -> None:
        """Abort if runs of two settings killed their executors and no run was measured."""
        runs = sorted({mark.parents[2].name for mark in marks})
        settings = {Run.parse(run).setting for run in runs}
        if not self.keep_going and not self._first_failures.measured and len(settings) > 1:
            self.abort_reason = self.abort_reason or StopReason.brought_down.format(runs=", ".join(runs[:2]))

    def _finish_aborted(self, reason: str) -> None:
        """Write the reason for each unfinished block, and report and publish the existing results."""
        warn("no further run is started; writing the report")  # which is followed by the reason
        deadline = time.monotonic() + _EXECUTORS_END_SECONDS
        while any(map(live_lock, self.folder.locks())) and time.monotonic() < deadline:
            time.sleep(_POLL_SECONDS)  # the executors write their own halt files
        for block in Manifest.read(self.folder.manifest).blocks:
            if not self.folder.done(block.name).exists():
                Halt(block=block.name, reason=masked(reason), retry="changed").write(self.folder.halt(block.name))
        finalize(self.folder)
        with start_publisher(self.folder, self.tracking_uri) as publisher:
            finish_publishing(publisher, self.folder, self.tracking_uri)

    def _run_once(self, options: Sequence[str], queue: JobQueue | None) -> int:
        """Run Snakemake and the publisher to completion; interrupt Snakemake if it is waiting for forgotten jobs."""
        progress = SweepProgress.begin(self.folder, self._first_failures)
        with (
            start_publisher(self.folder, self.tracking_uri) as publisher,
            self.starter.start(self.folder, options, self.temporary) as snakemake,
        ):
            try:
                with progress.display():
                    while snakemake.running():
                        self._poll(progress, snakemake, publisher, queue)
                        snakemake.sleep(_POLL_SECONDS)
                    progress.update()
                    self.on_progress(progress)
            except KeyboardInterrupt as interrupt:
                warn("\nstopping: ending the current run, keeping the finished ones ...")
                hurry = isinstance(interrupt, JobCancelled)  # there is no time for an orderly shutdown
                (snakemake.kill if hurry else snakemake.interrupt)()
                if queue:
                    queue.cancel()
                (publisher.kill if hurry else publisher.terminate)()
                return EXIT_INTERRUPTED
            except DriverEvicted:
                snakemake.kill()  # on Ctrl-C it would cancel its jobs, but the next driver waits for them
                publisher.terminate()
                raise
            finish_publishing(publisher, self.folder, self.tracking_uri)
        return snakemake.wait()

    def _poll(
        self, progress: SweepProgress, snakemake: ChildProcess, publisher: ChildProcess, queue: JobQueue | None
    ) -> None:
        progress.update()
        self.on_progress(progress)
        for line in publisher_warnings(publisher):  # while there is still time to fix the problems
            if line not in self._warned:
                self._warned.add(line)
                warn(line)
        if queue:
            queue.update()
            if queue.forgotten:
                say("Slurm has forgotten the jobs that Snakemake waits for (MinJobAge): restarting Snakemake")
                snakemake.interrupt()
        if self.deadline is not None and time.monotonic() >= self.deadline and not self.folder.stop.exists():
            self.folder.stop.touch()
            say("the time budget is spent: no further runs will be started")
        if self._first_failures.common_error and not self.keep_going and not self.abort_reason:
            self.abort_reason = StopReason.alike.format(error=self._first_failures.common_error)
            snakemake.kill()  # on a signal, it would first write a report without our reason
            if queue:
                queue.cancel()


_ERROR_PREFIX = "error: "

_TERMINATED = ("Terminating processes on user request", "Will exit after finishing currently running jobs")
"""Snakemake's messages after SIGINT and after SIGTERM."""

_ERROR_HEADING = re.compile(r"(?:\w+\.)*\w+(?:Error|Exception)(?: in (?:file|rule) .*)?:")

_ERROR_LINE = re.compile(r"(?:(?:\w+\.)*\w+(?:Error|Exception|Exit)|(?:\w+\.)+error): \S.*")

_JOB_MESSAGE = re.compile(r"\s+message: (?!None$)(.+?)(?:\. For further error details.*)?")
"""The executor plugin's message about a failed cluster job."""

_CONSEQUENCE = re.compile(r"Command '.*|At least one job did not complete successfully.*|.*CalledProcessError.*")
"""Messages that merely report a failed shell command, which is never the root cause (see `_failed_commands`)."""

_FILES_HEADING = re.compile(r"\s*(?:affected|missing) files:\s*|.*[Mm]issing files? after .*", re.IGNORECASE)
"""The line that precedes the names of the files affected by a Snakemake error."""

_RULE_ERROR = re.compile(r"^Error in rule \w+:\n((?:[ \t].*\n)*)", re.MULTILINE)

_RULE_LOG = re.compile(r"^ +log: ([^\n(]+?)(?: \(check log file.*)?$", re.MULTILINE)

_COMMAND = re.compile(
    r"^Command '(?P<command>[^\n]*)' (?:died with <Signals\.(?P<name>\w+)|returned non-zero exit status (?P<code>\d+))",
    re.MULTILINE,
)

_MODULE = re.compile(r"-m (accelsweep\.[\w.]+)( --prepare)?")

_TIME = re.compile(r"^\d\d:\d\d:\d\d ")

_STEPS = {
    "accelsweep.executor --prepare": "preparing the data",
    "accelsweep.executor": "a block",
    "accelsweep.tracking.live_publishing": "the copy to MLflow",
    "accelsweep.driver.finalize": "the report",
}
"""User-facing descriptions of the workflow's commands."""


def why_snakemake_ended(log: Path, code: int) -> str:
    """Return the root cause of Snakemake's failure in one line, from its log and its exit code (negative for a signal).

    If Snakemake's log only reports that a command failed, that command's log in the same folder is searched.
    """
    if code < 0:
        return f"it was killed by {_signal_name(-code)}"
    lines = tail_lines(log)
    ours = [line.removeprefix(_ERROR_PREFIX) for line in lines if line.startswith(_ERROR_PREFIX)]
    if ours:
        return ours[-1]
    if any(line.startswith(_TERMINATED) for line in lines):
        return "it was told to stop"
    messages = [*_failed_commands("\n".join(lines), log.parent), *_error_messages(lines)]
    if messages:
        return messages[-1]
    printed = [line.strip() for line in lines if line.strip()]
    if not printed:
        return f"its log was emptied, or Python could not start it (exit code {code})"
    return f"it gave no reason (exit code {code}) after: {printed[-1]}"


def _error_messages(lines: Sequence[str]) -> Iterator[str]:
    """Yield each error message (on the exception's line or the next one), followed by the first affected file."""
    for number, (line, following) in enumerate(itertools.pairwise([*lines, ""])):
        if message := _JOB_MESSAGE.fullmatch(line):
            yield message[1]
        stripped = line.strip()
        text = following if _ERROR_HEADING.fullmatch(stripped) else stripped if _ERROR_LINE.fullmatch(stripped) else ""
        if text.strip() and not _CONSEQUENCE.fullmatch(text.strip()):
            listed = itertools.pairwise(lines[number + 1 : number + 8])
            files = (name.strip() for heading, name in listed if _FILES_HEADING.fullmatch(heading))
            yield " ".join([text.strip(), *itertools.islice(filter(None, files), 1)])


def _failed_commands(text: str, logs: Path) -> Iterator[str]:
    """Yield why commands of the workflow failed: the signals that killed them, or the last lines of their logs."""
    rule_logs = [log[1] for rule in _RULE_ERROR.finditer(text) if (log := _RULE_LOG.search(rule[1]))]
    for failed in _COMMAND.finditer(text):
        module = _MODULE.search(failed["command"])
        step = _STEPS.get(f"{module[1]}{module[2] or ''}", module[1]) if module else "a command of the workflow"
        code = int(failed["code"] or 0)
        if failed["name"] or code > 128:
            yield f"{step} was killed by {failed['name'] or _signal_name(code - 128)}"
            continue
        own_logs = [log for log in rule_logs if log in failed["command"]]
        lines = [_TIME.sub("", line.strip()) for line in tail_lines(logs / Path(own_logs[-1]).name)] if own_logs else []
        message = next(filter(None, reversed(lines)), "").removeprefix(_ERROR_PREFIX)
        yield f"{step} failed: {message or f'it ended with exit code {code}, and its log is empty'}"


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
