"""A sweep carried out: planned, its blocks run by Snakemake and followed, copied to MLflow, and its results printed."""

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
from accelsweep.driver.adaptive_repeats import plan_after_look, plan_after_pilot, refuse_short_budget
from accelsweep.driver.auto_batch_size import planned_after_searches, tell_of_batches, tell_of_searches
from accelsweep.driver.background_processes import fork_server, own_temporary_folder
from accelsweep.driver.console import drop_output, say, warn
from accelsweep.driver.finalize import print_results
from accelsweep.driver.job_queue import Queue, refuse_before_submission, settle_old_jobs
from accelsweep.driver.plan_preview import planned, show_plan
from accelsweep.driver.progress_display import SweepProgress
from accelsweep.driver.request import Request
from accelsweep.driver.snakefile_functions import check_profile, executor_of, find_profile
from accelsweep.driver.snakemake_process import Driving, why_snakemake_ended
from accelsweep.driver.sweep_lock import held, make_ready, refuse_narrow_limits
from accelsweep.driver.up_to_date import forget_altered_report, note_standing, stands
from accelsweep.errors import EXIT_INCOMPLETE, EXIT_INTERRUPTED, EXIT_OK, AccelsweepError
from accelsweep.records.findings import Findings
from accelsweep.records.layout import SweepFolder
from accelsweep.records.plan import Manifest
from accelsweep.schedulers.protocol import refuse_without
from accelsweep.schedulers.select import engine_behind, engine_of

if TYPE_CHECKING:
    from accelsweep.planning.checked_grid import BatchSearchNeeded
    from accelsweep.planning.plan import Plan


class Listener(Protocol):
    """A part of a feature that follows a command; `folder` is set once the sweep's name is known."""

    folder: SweepFolder | None

    def progressed(self, progress: SweepProgress) -> None:
        """Note the present progress; called often."""

    def ended(self, code: int) -> None:
        """Note the end of a command that exits with `code`."""

    def failed(self, error: BaseException) -> None:
        """Note the error or interruption that ended the command."""


class Listeners:
    """All listeners to one command."""

    def __init__(self, request: Request, folder: SweepFolder | None = None) -> None:
        """Raises InputError where an option of the request cannot be followed."""
        self._all: list[Listener] = [make(request, folder) for make in registry.loaded("listener")]

    def follow(self, folder: SweepFolder) -> None:
        """Tell all of them the sweep's folder."""
        for listener in self._all:
            listener.folder = folder

    def progressed(self, progress: SweepProgress) -> None:
        """Pass the present progress on."""
        for listener in self._all:
            listener.progressed(progress)

    def ended(self, code: int) -> None:
        """Pass the end of the command on."""
        for listener in self._all:
            listener.ended(code)

    @contextlib.contextmanager
    def told_of_failure(self) -> Iterator[None]:
        """Tell all of them of an error or an interruption that leaves the block."""
        try:
            yield
        except BaseException as error:
            for listener in self._all:
                listener.failed(error)
            raise


@dataclass(frozen=True)
class Ended:
    """The end of `run`: the sweep's name, and 0 if every planned run is settled, 1 if not, 130 if interrupted."""

    sweep: str
    code: int


# A planned sweep measured by its head: the plan is written, and Snakemake driven through it and what it grows by.


def measured(
    folder: SweepFolder, request: Request, plan: Plan, budget_seconds: float | None, listeners: Listeners
) -> int:
    """Run Snakemake until every planned run was tried; return its exit code."""
    from accelsweep.planning.plan import write_plan

    home, site = folder.home, plan.manifest.site
    with held(folder, cancel_old=request.cancel_old) as head, own_temporary_folder(folder, site) as temporary:
        if temporary is not None and temporary.parent != Path(tempfile.gettempdir()):
            say(f"TMPDIR is too long for sockets: temporary files go to {temporary}")
        deadline = None if budget_seconds is None else time.monotonic() + budget_seconds

        def watch(progress: SweepProgress) -> None:
            head.beat()
            listeners.progressed(progress)

        queue = Queue(folder, engine_of(site), say, plan.manifest.options.limits.queue_minutes)
        driving = Driving(
            folder,
            queue,
            request.profile,
            request.jobs,
            request.tracking_uri,
            deadline,
            watch,
            temporary,
            request.keep_going,
        )
        _settle(queue, watch, head.beat, cancel=request.cancel_old, deadline=deadline)
        write_plan(home, plan)  # only now: the plan of a sweep that is being run belongs to its head
        make_ready(folder, warn)
        forget_altered_report(folder)
        whole = stands(folder, request.tracking_uri)
        with contextlib.nullcontext() if whole else fork_server(home, folder.fork_server_log, [plan]):
            code = EXIT_OK if whole else driving.drive(plan)
            while not driving.ended_early and (further := _further(folder, request, plan, code, deadline)):
                plan = further
                show_plan(home, plan)
                write_plan(home, plan)
                code = driving.drive(plan)
    if code == EXIT_OK:
        note_standing(folder)
    return code


def _settle(
    queue: Queue,
    watch: Callable[[SweepProgress], None],
    beat: Callable[[], None],
    *,
    cancel: bool,
    deadline: float | None,
) -> None:
    """Wait for the jobs of an earlier head, or cancel them, and show the progress of its plan meanwhile."""

    @cache
    def earlier() -> SweepProgress | None:
        with contextlib.suppress(OSError, AccelsweepError):  # no plan of ours
            return SweepProgress.begin(queue.folder)
        return None

    def look() -> None:
        beat()
        if (progress := earlier()) is not None:
            progress.update()
            watch(progress)

    settle_old_jobs(queue, cancel=cancel, watch=look, deadline=deadline)


def _further(folder: SweepFolder, request: Request, plan: Plan, code: int, deadline: float | None) -> Plan | None:
    """Return the plan with the blocks that `repeats: auto` adds; None after an interruption or a spent budget."""
    if code == EXIT_INTERRUPTED or folder.stop.exists():
        return None
    left = None if deadline is None else deadline - time.monotonic()
    after = plan_after_look if request.until_decided else plan_after_pilot
    return after(folder.home, plan, request.overrides, request.name, left)


def carried_out(home: Path, request: Request) -> Ended:
    """Run the sweep to its report; return how that ended."""
    named = SweepFolder(home, request.name) if request.name is not None else None
    check_request(request)
    listeners = Listeners(request, named)
    with listeners.told_of_failure():
        try:
            ended = _carried_out(home, request, listeners)
        except BrokenPipeError:
            drop_output()
            raise AccelsweepError(
                "nobody reads the output of this command any more (its pipe was closed, as by `| head`), so it ended. "
                f"What was measured is kept. Go on, into a file: {request.again()} > sweep.txt 2>&1"
            ) from None
    listeners.ended(ended.code)
    return ended


def _carried_out(home: Path, request: Request, listeners: Listeners) -> Ended:
    budget_seconds, began = request.budget_seconds, time.monotonic()
    plan = planned_after_searches(home, partial(planned, home, request))
    if isinstance(plan, tuple):
        wanted, first = plan
        code = _searched(home, request, wanted, first, budget_seconds, listeners)
        plan = planned_after_searches(home, partial(planned, home, request))
        if isinstance(plan, tuple):
            say(f"{wanted.sweep} is not planned yet, because searches are left. Resume with: {request.again()}")
            return Ended(wanted.sweep, code or EXIT_INCOMPLETE)
        budget_seconds = None if budget_seconds is None else max(0.0, budget_seconds - time.monotonic() + began)
    folder = SweepFolder(home, plan.manifest.sweep)
    listeners.follow(folder)
    refuse_misfits(request, plan)
    refuse_short_budget(home, plan, budget_seconds)
    show_plan(home, plan)
    refuse_untaken_jobs(home, plan)
    code = measured(folder, request, plan, budget_seconds, listeners)
    if code == EXIT_INTERRUPTED:
        say(f"\ninterrupted; every finished run is kept. Resume with: {request.again()}")
    else:
        code = _conclude(folder, request.tracking_uri, code)
    return Ended(folder.name, code)


def found_by(home: Path, ended: Ended) -> tuple[Findings, Manifest] | None:
    """Return the findings of a sweep that ended so, and its plan; None where no new ones were made, and it said why."""
    folder = SweepFolder(home, ended.sweep)
    if ended.code == EXIT_INTERRUPTED or not folder.findings.is_file():
        return None
    findings, manifest = Findings.read(folder.findings), Manifest.read(folder.manifest)
    return (findings, manifest) if findings.revision == manifest.revision else None


def check_request(request: Request) -> None:
    """Raise InputError for a profile that cannot be used here."""
    if engine := engine_behind(executor_of(find_profile(request.profile))):
        refuse_without(engine, f"--profile {request.profile}")


def refuse_misfits(request: Request, plan: Plan) -> None:
    """Raise an error where the site cannot be driven with the profile that was given, or not from here.

    A shell whose limits let no sweep run is refused, too.
    """
    refuse_narrow_limits()
    site = plan.manifest.site
    check_profile(find_profile(request.profile), site)
    if engine := engine_of(site):
        refuse_without(engine, f"the site '{site.name}'")


def refuse_untaken_jobs(home: Path, plan: Plan) -> None:
    """Raise InputError where the site's engine would refuse a job of a block that is left to measure."""
    folder, manifest = SweepFolder(home, plan.manifest.sweep), plan.manifest
    left = [block.resources for block in manifest.blocks if not folder.done(block.name).exists()]
    refuse_before_submission(manifest.site, left, warn)


def _searched(
    home: Path,
    request: Request,
    wanted: BatchSearchNeeded,
    first: Plan,
    budget_seconds: float | None,
    listeners: Listeners,
) -> int:
    """Run the searches for automatic batches, a sweep of their own; return Snakemake's exit code."""
    folder = SweepFolder(home, first.manifest.sweep)
    listeners.follow(folder)
    refuse_misfits(request, first)
    tell_of_searches(wanted, first)
    show_plan(home, first)
    refuse_untaken_jobs(home, first)
    code = measured(folder, request, first, budget_seconds, listeners)
    tell_of_batches(home, wanted)
    return code


def _conclude(folder: SweepFolder, tracking_uri: str | None, code: int) -> int:
    """Print the results, and say last what went wrong where Snakemake ended with `code`; return the exit code."""
    log = folder.snakemake_log
    why = f"{why_snakemake_ended(log, code)}; {log.relative_to(folder.home)} has more. The same command goes on"
    if not (folder.findings.is_file() and folder.page.is_file()):
        warn(f"no report was written, because Snakemake failed: {why}")
        return EXIT_INCOMPLETE
    told = print_results(folder, tracking_uri)
    if code and not told.explained:
        warn(f"Snakemake ended early: {why}")
    return EXIT_INCOMPLETE if told.unsettled or code or not told.copied else EXIT_OK
