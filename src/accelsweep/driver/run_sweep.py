"""Runs a sweep: plans it, lets Snakemake measure its blocks, publishes it to MLflow, and prints the results."""

from __future__ import annotations

import contextlib
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from accelsweep import registry
from accelsweep.devices import linux
from accelsweep.driver.adaptive_repeats import plan_after_interim_analysis, plan_after_pilot, refuse_short_budget
from accelsweep.driver.auto_batch_size import announce_searches, plan_or_searches, report_searches
from accelsweep.driver.background_processes import (
    ForkServers,
    Interpreter,
    forking_interpreters,
    sweep_temporary_folder,
)
from accelsweep.driver.console import drop_output, say, warn
from accelsweep.driver.finalize import print_results
from accelsweep.driver.job_queue import JobQueue, check_jobs_accepted, wait_for_earlier_jobs
from accelsweep.driver.plan_preview import requested_plan, show_plan, show_plan_to_run
from accelsweep.driver.progress_display import SweepProgress
from accelsweep.driver.request import Request
from accelsweep.driver.snakefile_functions import check_profile, profile_executor
from accelsweep.driver.snakemake_process import SnakemakeRunner, SnakemakeStarter, why_snakemake_ended
from accelsweep.driver.sweep_lock import clear_leftovers, lock_sweep
from accelsweep.driver.trial import plan_after_trial
from accelsweep.driver.up_to_date import is_up_to_date, mark_up_to_date, remove_altered_report
from accelsweep.errors import EXIT_INCOMPLETE, EXIT_INTERRUPTED, EXIT_OK, AccelsweepError, InputError
from accelsweep.planning.entry_point import measured_project
from accelsweep.records.findings import Findings
from accelsweep.records.layout import SweepFolder, known_sweeps
from accelsweep.records.plan import Manifest
from accelsweep.schedulers.protocol import refuse_without
from accelsweep.schedulers.select import scheduler_of, scheduler_of_executor

if TYPE_CHECKING:
    from accelsweep.planning.plan import Plan


class Listener(Protocol):
    """A feature's observer of a command; `folder` is set once the sweep's name is known."""

    folder: SweepFolder | None

    def progressed(self, progress: SweepProgress) -> None:
        """Handle the current progress; called often."""

    def ended(self, code: int) -> None:
        """Handle the end of a command that exits with `code`."""

    def failed(self, error: BaseException) -> None:
        """Handle the error or interruption that ended the command."""


class Listeners:
    """All listeners of one command."""

    def __init__(self, request: Request, folder: SweepFolder | None = None) -> None:
        """Raises InputError if a listener's option is invalid."""
        self._all: list[Listener] = [make(request, folder) for make in registry.loaded("listener")]

    def set_folder(self, folder: SweepFolder) -> None:
        """Set the sweep's folder."""
        for listener in self._all:
            listener.folder = folder

    def progressed(self, progress: SweepProgress) -> None:
        """Report the current progress."""
        for listener in self._all:
            listener.progressed(progress)

    def ended(self, code: int) -> None:
        """Report the end of the command."""
        for listener in self._all:
            listener.ended(code)

    @contextlib.contextmanager
    def report_failure(self) -> Iterator[None]:
        """Report any error or interruption that leaves the with-block."""
        try:
            yield
        except BaseException as error:
            for listener in self._all:
                listener.failed(error)
            raise


@dataclass(frozen=True)
class SweepExit:
    """How a command ended for `sweep`. `code` is 0 if every planned run is settled, 1 if not, 130 if interrupted."""

    sweep: str
    code: int


def run_sweep(home: Path, request: Request) -> SweepExit:
    """Run the requested sweep, from its plan to its report."""
    check_request(request)
    listeners = Listeners(request, SweepFolder(home, request.name) if request.name is not None else None)
    with listeners.report_failure(), ForkServers(home) as servers, SnakemakeStarter(home) as starter:
        servers.start(expected_interpreters(home, request))
        try:
            result = _run(home, request, listeners, servers, starter)
        except BrokenPipeError:
            drop_output()
            raise AccelsweepError(
                "the output pipe of this command was closed (as by `| head`), so the command ended. "
                f"Finished runs are kept. Resume with output to a file: {request.resume_command()} > sweep.txt 2>&1"
            ) from None
    listeners.ended(result.code)
    return result


def expected_interpreters(home: Path, request: Request) -> frozenset[Interpreter]:
    """Return the interpreters from which runs will probably be forked on this machine, before anything is planned.

    There are none if the sweep is complete. Without a given name, any complete sweep in `home` may be the one. Which
    environments a comparison of versions has is not known yet.
    """
    if profile_executor(request.profile) != "local":
        return frozenset()
    names = known_sweeps(home) if request.name is None else [request.name]
    if any(SweepFolder(home, name).completed_state.exists() for name in names):
        return frozenset()
    try:
        project = measured_project(home.resolve(), request.entry, request.overrides)
        if project is None or not (project.own_environment or project.whole_process):
            return frozenset({Interpreter()})
        if project.whole_process or request.extension is not None:
            return frozenset()
        return frozenset({Interpreter(project.python, project.package, project.imports_lightning)})
    except InputError:  # planning reports it
        return frozenset()


def _run(
    home: Path, request: Request, listeners: Listeners, servers: ForkServers, starter: SnakemakeStarter
) -> SweepExit:
    budget_seconds, start = request.budget_seconds, time.monotonic()
    plan = plan_or_searches(home, partial(requested_plan, home, request))
    if isinstance(plan, tuple):
        unsearched, searches = plan
        announce_searches(unsearched, searches)
        code = _check_and_measure(home, request, searches, budget_seconds, listeners, servers, starter)
        report_searches(home, unsearched)
        plan = plan_or_searches(home, partial(requested_plan, home, request))
        if isinstance(plan, tuple):
            resume = request.resume_command()
            say(f"{unsearched.sweep} is not planned yet, because searches are unfinished. Resume with: {resume}")
            return SweepExit(unsearched.sweep, code or EXIT_INCOMPLETE)
        budget_seconds = None if budget_seconds is None else max(0.0, budget_seconds - time.monotonic() + start)
    folder = SweepFolder(home, plan.manifest.sweep)
    servers.stop_others(forking_interpreters(plan))  # their imports would slow down a trial
    compositions = plan.entry_options.get("compositions")
    try:
        plan = plan_after_trial(
            folder,
            plan,
            lambda trial: requested_plan(home, request, trial=trial, compositions=compositions),
            on_trial=starter.import_ahead,
        )
    except BaseException:
        if request.extension is not None and plan.previous is None:
            request.extension.discard(folder)
        raise
    code = _check_and_measure(home, request, plan, budget_seconds, listeners, servers, starter)
    if code == EXIT_INTERRUPTED:
        say(f"\ninterrupted; every finished run is kept. Resume with: {request.resume_command()}")
    else:
        code = _conclude(folder, request.tracking_uri, code)
    return SweepExit(folder.name, code)


def _check_and_measure(
    home: Path,
    request: Request,
    plan: Plan,
    budget_seconds: float | None,
    listeners: Listeners,
    servers: ForkServers,
    starter: SnakemakeStarter,
) -> int:
    folder = SweepFolder(home, plan.manifest.sweep)
    listeners.set_folder(folder)
    if not folder.completed_state.exists():
        servers.start(forking_interpreters(plan))
    check_and_show_plan(home, request, plan, budget_seconds)
    return measure_sweep(folder, request, plan, budget_seconds, listeners, servers, starter)


def measure_sweep(
    folder: SweepFolder,
    request: Request,
    plan: Plan,
    budget_seconds: float | None,
    listeners: Listeners,
    servers: ForkServers,
    starter: SnakemakeStarter,
) -> int:
    """Write the plan, and run Snakemake until all runs, even in added blocks, have been tried; return its exit code.

    The `servers` that are needed are started, and the others stopped.
    """
    from accelsweep.planning.plan import write_plan

    home, site = folder.home, plan.manifest.site
    with lock_sweep(folder, cancel_old=request.cancel_old) as lock, sweep_temporary_folder(folder, site) as temporary:
        if temporary is not None and temporary.parent != Path(tempfile.gettempdir()):
            say(f"TMPDIR is too long for sockets: temporary files go to {temporary}")
        deadline = None if budget_seconds is None else time.monotonic() + budget_seconds

        def on_progress(progress: SweepProgress) -> None:
            lock.heartbeat()
            listeners.progressed(progress)

        queue = None
        if scheduler := scheduler_of(site):
            queue = JobQueue(folder, scheduler, say, plan.manifest.options.limits.queue_minutes)
            _wait_for_earlier_jobs(queue, on_progress, lock.heartbeat, cancel=request.cancel_old, deadline=deadline)
        runner = SnakemakeRunner(
            folder,
            queue,
            request.profile,
            request.jobs,
            request.tracking_uri,
            deadline,
            on_progress,
            temporary,
            starter,
            request.keep_going,
        )
        write_plan(home, plan)  # not earlier: the plan of a running sweep belongs to its driver
        clear_leftovers(folder, warn)
        up_to_date = is_up_to_date(folder, request.tracking_uri)
        if not up_to_date:
            remove_altered_report(folder)
        servers.log = folder.fork_server_log

        def run(plan: Plan) -> int:
            servers.stop_others(needed := forking_interpreters(plan))
            servers.start(needed)
            return runner.run(plan)

        if up_to_date:
            servers.stop_others()
        code = EXIT_OK if up_to_date else run(plan)
        while not runner.abort_reason and (extended := _extended_plan(folder, request, plan, code, deadline)):
            plan = extended
            show_plan(home, plan)
            write_plan(home, plan)
            code = run(plan)
    if code == EXIT_OK:
        mark_up_to_date(folder)
    return code


def _wait_for_earlier_jobs(
    queue: JobQueue,
    on_progress: Callable[[SweepProgress], None],
    beat: Callable[[], None],
    *,
    cancel: bool,
    deadline: float | None,
) -> None:
    """Wait for an earlier driver's jobs, or cancel them, while showing the progress of its plan."""

    @cache
    def earlier_progress() -> SweepProgress | None:
        with contextlib.suppress(OSError, AccelsweepError):  # if there is no readable plan
            return SweepProgress.begin(queue.folder)
        return None

    def on_poll() -> None:
        beat()
        if (progress := earlier_progress()) is not None:
            progress.update()
            on_progress(progress)

    wait_for_earlier_jobs(queue, cancel=cancel, on_poll=on_poll, deadline=deadline)


def _extended_plan(folder: SweepFolder, request: Request, plan: Plan, code: int, deadline: float | None) -> Plan | None:
    """Return the plan with blocks added by `repeats: auto` or `--until-decided`; None if there are no blocks to add."""
    if code == EXIT_INTERRUPTED or folder.stop.exists():
        return None
    seconds_left = None if deadline is None else deadline - time.monotonic()
    extend = plan_after_interim_analysis if request.until_decided else plan_after_pilot
    return extend(folder.home, plan, request.overrides, request.name, seconds_left)


def _conclude(folder: SweepFolder, tracking_uri: str | None, code: int) -> int:
    """Print the results and, last, why Snakemake ended with a non-zero `code`; return the exit code."""
    log = folder.snakemake_log
    why = why_snakemake_ended(log, code)
    why = f"{why}; {log.relative_to(folder.home)} has more. The same command resumes the sweep"
    if not (folder.findings.is_file() and folder.page.is_file()):
        warn(f"no report was written, because Snakemake failed: {why}")
        return EXIT_INCOMPLETE
    summary = print_results(folder, tracking_uri)
    if code and not summary.explained:
        warn(f"Snakemake ended early: {why}")
    complete = summary.can_run and not summary.unsettled and not code and summary.published
    return EXIT_OK if complete else EXIT_INCOMPLETE


def new_findings(home: Path, result: SweepExit) -> tuple[Findings, Manifest] | None:
    """Return the findings and plan of a command's sweep; None if there are no new ones, as already reported."""
    folder = SweepFolder(home, result.sweep)
    if result.code == EXIT_INTERRUPTED or not folder.findings.is_file():
        return None
    findings, manifest = Findings.read(folder.findings), Manifest.read(folder.manifest)
    return (findings, manifest) if findings.revision == manifest.revision else None


def check_request(request: Request) -> None:
    """Raise InputError if the profile submits to a scheduler that this machine lacks."""
    if scheduler := scheduler_of_executor(profile_executor(request.profile)):
        refuse_without(scheduler, f"--profile {request.profile}")


def check_and_show_plan(home: Path, request: Request, plan: Plan, budget_seconds: float | None) -> None:
    """Print a plan. Raise InputError if it cannot be run as requested.

    Possible reasons: this shell's limits or the time budget are too low, the site does not fit the profile or this
    machine, or the scheduler would reject the job of a remaining block.
    """
    if limits := list(linux.insufficient_limits()):
        raise InputError("; ".join(limits))
    folder, manifest = SweepFolder(home, plan.manifest.sweep), plan.manifest
    check_profile(request.profile, manifest.site)
    if scheduler := scheduler_of(manifest.site):
        refuse_without(scheduler, f"the site '{manifest.site.name}'")
    refuse_short_budget(home, plan, budget_seconds)
    show_plan_to_run(home, plan)
    left = [block.resources for block in manifest.blocks if not folder.done(block.name).exists()]
    check_jobs_accepted(manifest.site, left, warn)
