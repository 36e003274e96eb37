"""Snakemake driven to its end: watched, with a publisher beside it, and started anew where Slurm forgot its jobs."""

from __future__ import annotations

import itertools
import os
import re
import signal
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from accelsweep.driver import background_processes
from accelsweep.driver.background_processes import Child
from accelsweep.driver.console import say, warn
from accelsweep.driver.job_queue import Queue
from accelsweep.driver.progress_display import FirstFailures, SweepProgress
from accelsweep.driver.snakefile_functions import find_profile
from accelsweep.errors import EXIT_INCOMPLETE, EXIT_INTERRUPTED
from accelsweep.files import tail_lines
from accelsweep.installation import shipped_root
from accelsweep.records.file_lock import live_lock
from accelsweep.records.layout import SweepFolder
from accelsweep.records.plan import Manifest
from accelsweep.records.stop_reasons import Halt, StopReason
from accelsweep.redaction import masked
from accelsweep.run_config import Run
from accelsweep.schedulers.job_environment import without_options
from accelsweep.schedulers.select import engine_of
from accelsweep.signals import DriverEvicted, JobCancelled

if TYPE_CHECKING:
    from accelsweep.planning.plan import Plan


# Snakemake as a child of the head: its command line, by the profile, the user's options and the plan.

_SHARED = ("persistence", "input-output", "software-deployment", "sources", "storage-local-copies")
"""The folders that Snakemake's jobs share. Its cache of remote sources is none: it would be made in HOME, empty."""


def options_for(plan: Plan, profile: str, jobs: int | None) -> list[str]:
    """Return Snakemake's options for a plan. `jobs` are its jobs at once; None means those that the site allows."""
    options = ["--profile", str(find_profile(profile))]
    site = plan.manifest.site
    engine = engine_of(site)
    jobs = jobs or (site.jobs.max_jobs if engine else None)
    options += ["--jobs", str(jobs)] if jobs else []
    options += engine.options(plan.manifest.sweep) if engine else []
    slots = max((setting.config.measure.concurrency for setting in plan.settings), default=1)
    if site.scheduler == "local" and slots > 1:
        options += ["--resources", f"timing={slots}"]
    return options


def start_snakemake(folder: SweepFolder, options: Sequence[str], temporary: Path | None = None) -> Child:
    """Start Snakemake with these options on the plan that is written; it ends when everything was tried.

    Its own temporary files go to the folder `temporary`; None means the place that the environment names.
    """
    command = [
        sys.executable,
        "-P",
        "-m",
        *(["snakemake"] if temporary is None else ["accelsweep.driver.snakemake_main", str(temporary)]),
        "--snakefile",
        str(shipped_root() / "Snakefile"),
        "--nolock",
        *("--workflow-profile", "none"),  # else profiles/default, in the user's folder, would be one
        "--shared-fs-usage",
        *_SHARED,
        *options,
    ]
    # With its folder, because Snakemake reads a bare 1e3 or 007 as a number.
    command += ["--config", f"sweep=sweeps/{folder.name}", "--", "told"]
    # Snakemake starts further ones of itself: `-P` is for this one, and the variable for those.
    environment = {**without_options(os.environ), "PYTHONSAFEPATH": "1"}
    return Child.start(command, cwd=folder.home, log=folder.snakemake_log, environment=environment)


_POLL_SECONDS = 0.5

_ENDS_SECONDS = 60.0

_NAMED = 2


@dataclass
class Driving:
    """The common part of one head's Snakemakes: they run one after the other, where a plan grows.

    Each has a `queue` of its own, made of the head's. `keep_going` measures on where all settings fail alike; else
    `ended_early` says why the rest was left. `watch` is called twice a second. No run begins after `deadline`,
    on the monotonic clock. `temporary` is the folder for Snakemake's temporary files, None for the usual one.
    """

    folder: SweepFolder
    queue: Queue
    profile: str
    jobs: int | None
    tracking_uri: str | None
    deadline: float | None
    watch: Callable[[SweepProgress], None]
    temporary: Path | None
    keep_going: bool = False
    ended_early: str | None = None
    _first: FirstFailures = field(init=False)
    _told: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        """Nothing has failed yet."""
        self._first = FirstFailures(self.folder)

    def drive(self, plan: Plan) -> int:
        """Run Snakemake until every run of the plan, which is written, was tried; return its exit code.

        A run that ends its supervisor without a word ends its block, too. So Snakemake is started again for the rest of
        the block, as long as that charges a run with another attempt: no run is started more than twice after that.
        Where the first settings all end alike, the rest is left (`ended_early` says why), unless `keep_going`.
        """
        options, known = options_for(plan, self.profile, self.jobs), self._fallen()
        queue = self.queue
        while True:
            queue = queue.anew()
            code = self._follow(options, queue)
            fallen = self._fallen() - known
            known |= fallen
            self._leave_if_all_fall(known)
            if self.ended_early and code != EXIT_INTERRUPTED:
                self._conclude_early(self.ended_early)
                return EXIT_INCOMPLETE
            if code <= 0 or code == EXIT_INTERRUPTED or self.folder.stop.exists() or not (queue.forgotten or fallen):
                return code
            for run in sorted(mark.parents[2].name for mark in fallen):
                say(f"{run} ended its executor without a word: the other runs of its block come first")

    def _fallen(self) -> set[Path]:
        """Return the marks of attempts whose supervisors ended without a word."""
        living = {hold.run for hold in map(live_lock, self.folder.locks()) if hold is not None}
        return {mark for mark in self.folder.open_attempts() if mark.parents[2].name not in living}

    def _leave_if_all_fall(self, marks: set[Path]) -> None:
        """Leave the rest where runs of two settings ended their supervisors, and no run was measured."""
        runs = sorted({mark.parents[2].name for mark in marks})
        if not self.keep_going and not self._first.measured and len({Run.parse(run).setting for run in runs}) > 1:
            self.ended_early = self.ended_early or StopReason.brought_down.format(runs=", ".join(runs[:_NAMED]))

    def _conclude_early(self, why: str) -> None:
        """Say beside each unfinished block why it was left, and write the report with what there is."""
        from accelsweep.driver.finalize import finish

        warn(why)
        deadline = time.monotonic() + _ENDS_SECONDS
        while any(map(live_lock, self.folder.locks())) and time.monotonic() < deadline:
            time.sleep(_POLL_SECONDS)  # they leave a halt of their own
        for block in Manifest.read(self.folder.manifest).blocks:
            if not self.folder.done(block.name).exists():
                Halt(block=block.name, reason=masked(why)).write(self.folder.halt(block.name))
        finish(self.folder)
        with background_processes.follow(self.folder, self.tracking_uri) as following:
            background_processes.finish(following, self.folder, self.tracking_uri)

    def _follow(self, options: Sequence[str], queue: Queue) -> int:
        """Run Snakemake and the publisher to their ends; Snakemake is ended where it waits for forgotten jobs."""
        progress, deadline = SweepProgress.begin(self.folder, self._first), self.deadline
        with (
            background_processes.follow(self.folder, self.tracking_uri) as following,
            start_snakemake(self.folder, options, self.temporary) as snakemake,
        ):
            try:
                with progress.shown():
                    while snakemake.running():
                        progress.update()
                        self.watch(progress)
                        self._tell_of_mlflow(following)
                        queue.update()
                        if queue.forgotten:
                            say("Slurm has forgotten the jobs that Snakemake waits for (MinJobAge): starting it again")
                            snakemake.interrupt()
                        deadline = self._stop_at(deadline)
                        if self._first.alike and not self.keep_going and not self.ended_early:
                            self.ended_early = StopReason.alike.format(error=self._first.alike)
                            snakemake.kill()  # asked to end, it would write a report first, without our reason
                            queue.cancel_left()
                        time.sleep(_POLL_SECONDS)
                    progress.update()
                    self.watch(progress)
            except KeyboardInterrupt as asked:
                warn("\nstopping: ending the current run, keeping the finished ones ...")
                hurried = isinstance(asked, JobCancelled)  # there is no time for anybody to finish
                (snakemake.kill if hurried else snakemake.interrupt)()
                queue.cancel_left()
                (following.kill if hurried else following.finish)()
                return EXIT_INTERRUPTED
            except DriverEvicted:
                snakemake.kill()  # by Ctrl-C it would cancel its jobs, which another head waits for
                following.finish()
                raise
            background_processes.finish(following, self.folder, self.tracking_uri)
        return snakemake.code

    def _tell_of_mlflow(self, following: Child) -> None:
        """Show what keeps the publisher from its work, once: it can be mended while the sweep is measured."""
        for line in background_processes.complaints(following):
            if line not in self._told:
                self._told.add(line)
                warn(line)

    def _stop_at(self, deadline: float | None) -> float | None:
        if deadline is None or time.monotonic() < deadline:
            return deadline
        self.folder.stop.touch()
        say("the time budget is spent: no further run is started")
        return None


# Snakemake's reason for its end, in one sentence: its log has the rest, tracebacks and commands.

_OURS = "error: "

_STOPPED = ("Terminating processes on user request", "Will exit after finishing currently running jobs")
"""Snakemake's words after SIGINT and after SIGTERM."""

_HEADING = re.compile(r"(?:\w+\.)*\w+(?:Error|Exception)(?: in (?:file|rule) .*)?:")

_WHOLE = re.compile(r"(?:(?:\w+\.)*\w+(?:Error|Exception|Exit)|(?:\w+\.)+error): \S.*")

_MESSAGE = re.compile(r"\s+message: (?!None$)(.+?)(?:\. For further error details.*)?")
"""The executor's words about a job that the cluster ended."""

_SAYS_NOTHING = re.compile(r"Command '.*|At least one job did not complete successfully.*|.*CalledProcessError.*")
"""Of a command that failed its own log says why, or its end: see `_failed_commands`."""

_LISTED = re.compile(r"\s*(?:affected|missing) files:\s*|.*[Mm]issing files? after .*", re.IGNORECASE)
"""The line before the names of the files that an error of Snakemake is about."""

_STEP = re.compile(r"^Error in rule (?P<rule>\w+):\n(?P<rest>(?:[ \t].*\n)*)", re.MULTILINE)

_LOG = re.compile(r"^ +log: ([^\n(]+?)(?: \(check log file.*)?$", re.MULTILINE)

_COMMAND = re.compile(
    r"^Command '(?P<command>[^\n]*)' (?:died with <Signals\.(?P<name>\w+)|returned non-zero exit status (?P<code>\d+))",
    re.MULTILINE,
)

_MODULE = re.compile(r"-m (accelsweep\.[\w.]+)( --prepare)?")

_TIME = re.compile(r"^\d\d:\d\d:\d\d ")

_STEPS = {
    "accelsweep.executor --prepare": "preparing the data",
    "accelsweep.executor": "a block",
    "accelsweep.analysis.analyse_sweep": "the analysis",
    "accelsweep.report.report_files": "the report",
    "accelsweep.tracking.live_publishing": "the copy to MLflow",
    "accelsweep.driver.finalize": "the report of what there is",
}
"""What the commands of the workflow do, for users."""


def why_snakemake_ended(log: Path, code: int) -> str:
    """Return why Snakemake ended with this exit code, a negative one for a signal, by its log.

    Where Snakemake says only that a command failed, the log of that command is asked, which lies beside `log`.
    """
    if code < 0:
        return f"it was ended by {_name(-code)}"
    lines = tail_lines(log)
    ours = [line.removeprefix(_OURS) for line in lines if line.startswith(_OURS)]
    if ours:
        return ours[-1]
    if any(line.startswith(_STOPPED) for line in lines):
        return "it was told to stop"
    said = [*_failed_commands("\n".join(lines), log.parent), *_errors(lines)]
    if said:
        return said[-1]
    left = [line.strip() for line in lines if line.strip()]
    if not left:
        return f"its log was emptied, or Python could not start it (exit code {code})"
    return f"it gave no reason (exit code {code}) after: {left[-1]}"


def _errors(lines: Sequence[str]) -> Iterator[str]:
    """Yield the sentences of errors: on the line of the error's name, or on the next, with the files it is about."""
    for number, (line, following) in enumerate(itertools.pairwise([*lines, ""])):
        if message := _MESSAGE.fullmatch(line):
            yield message[1]
        said = following if _HEADING.fullmatch(line.strip()) else line if _WHOLE.fullmatch(line.strip()) else ""
        if said.strip() and not _SAYS_NOTHING.fullmatch(said.strip()):
            yield said.strip() + _files(lines[number + 1 : number + 8])


def _files(lines: Sequence[str]) -> str:
    """Return the first file that one of these lines announces."""
    for line, following in itertools.pairwise(lines):
        if _LISTED.fullmatch(line) and following.strip():
            return f" {following.strip()}"
    return ""


def _failed_commands(text: str, logs: Path) -> Iterator[str]:
    """Yield why commands of the workflow failed: the signals that ended them, or the last lines of their logs."""
    steps = {found["rule"]: found["rest"] for found in _STEP.finditer(text)}
    for found in _COMMAND.finditer(text):
        module = _MODULE.search(found["command"])
        step = _STEPS.get(f"{module[1]}{module[2] or ''}", module[1]) if module else "a command of the workflow"
        code = int(found["code"] or 0)
        if found["name"] or code > 128:
            yield f"{step} was ended by {found['name'] or _name(code - 128)}"
            continue
        own = [match[1] for rest in steps.values() if (match := _LOG.search(rest)) and match[1] in found["command"]]
        words = [_TIME.sub("", line.strip()) for line in tail_lines(logs / Path(own[-1]).name)] if own else []
        told = next((line for line in reversed(words) if line), "")
        yield f"{step} failed: {told.removeprefix(_OURS) or f'it ended with exit code {code}, and its log is empty'}"


def _name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
