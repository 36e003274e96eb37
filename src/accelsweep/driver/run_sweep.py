"""A sweep carried out: planned, its blocks run by Snakemake and followed, copied to MLflow, and its results printed."""

from __future__ import annotations

import contextlib
import shlex
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from accelsweep.config.sweep_options import Fleet
from accelsweep.config.versions import Version
from accelsweep.drive.following.delivery import Target
from accelsweep.drive.following.notices import Notices
from accelsweep.driver.adaptive_repeats import plan_after_look, plan_after_pilot, refuse_short_budget
from accelsweep.driver.auto_batch_size import planned_after_searches, tell_of_batches, tell_of_searches
from accelsweep.driver.background_processes import fork_server, own_temporary_folder
from accelsweep.driver.console import drop_output, say, warn
from accelsweep.driver.finalize import print_results
from accelsweep.driver.job_queue import Queue, refuse_before_submission, settle_old_jobs
from accelsweep.driver.plan_preview import show_plan
from accelsweep.driver.progress_display import SweepProgress
from accelsweep.driver.snakefile_functions import check_profile, executor_of, find_profile
from accelsweep.driver.snakemake_process import Driving, why_snakemake_ended
from accelsweep.driver.sweep_lock import held, make_ready, refuse_narrow_limits
from accelsweep.driver.up_to_date import forget_altered_report, note_standing, stands
from accelsweep.errors import EXIT_INCOMPLETE, EXIT_INTERRUPTED, EXIT_OK, AccelsweepError, InputError
from accelsweep.records.findings import Findings
from accelsweep.records.layout import SweepFolder
from accelsweep.records.plan import Manifest
from accelsweep.redaction import masked
from accelsweep.schedulers.protocol import refuse_without
from accelsweep.schedulers.select import engine_behind, engine_of
from accelsweep.significant_digits import parse_duration

if TYPE_CHECKING:
    from accelsweep.planning.auto_batch_size import Batches
    from accelsweep.planning.checked_grid import Unsearched
    from accelsweep.planning.plan import Plan


# The user's request to a command that measures, and how that ended.


@dataclass(frozen=True)
class Request:
    """The user's arguments of `run`, or of `ab`, which `compares` `versions` or the environments of `pythons`.

    `pinned` is what the names of versions stand for, where that is decided already. `fail_if` is the gate of `ab`.
    Those of `fleet` have a `fleet`, and those of `claims` the names of `claims`, none for all.
    """

    overrides: tuple[str, ...]
    versions: tuple[str, ...] = ()
    pythons: tuple[str, ...] = ()
    pinned: tuple[Version, ...] = ()
    compares: bool = False
    fail_if: str | None = None
    fleet: Fleet | None = None
    claims: tuple[str, ...] | None = None
    until_decided: bool = False
    name: str | None = None
    profile: str = "local"
    jobs: int | None = None
    add_repeats: int = 0
    time_budget: str | None = None
    tracking_uri: str | None = None
    cancel_old: bool = False
    keep_going: bool = False
    notify: tuple[str, ...] = ()

    @property
    def command(self) -> Literal["run", "ab", "fleet", "claims"]:
        """The command whose arguments these are."""
        if self.claims is not None:
            return "claims"
        return "ab" if self.compares else "fleet" if self.fleet else "run"

    @property
    def fleet_nodes(self) -> tuple[str, ...]:
        """The names of the nodes that are compared, as soon as they are chosen."""
        return self.fleet.nodes if self.fleet else ()

    def again(self) -> str:
        """Return the command that continues this sweep; added repeats are in the plan already.

        The addresses of notices and of the store are cut where they hold secrets.
        """
        store = None if self.tracking_uri is None else masked(self.tracking_uri)
        options = {"--name": self.name, "--jobs": self.jobs, "--tracking-uri": store}
        options |= {"--profile": self.profile if self.profile != "local" else None, "--fail-if": self.fail_if}
        given = [part for option, value in options.items() if value is not None for part in (option, str(value))]
        given += ["--until-decided"] if self.until_decided else []
        given += ["--keep-going"] if self.keep_going else []
        given += [part for address in self.notify for part in ("--notify", Target(address).shown)]
        given += self.fleet.words if self.fleet else []
        versions = [*self.versions, *(part for path in self.pythons for part in ("--python", path))]
        return shlex.join(["accelsweep", self.command, *versions, *self.overrides, *given])


@dataclass(frozen=True)
class Ended:
    """The end of `run`: the sweep's name, and 0 if every planned run is settled, 1 if not, 130 if interrupted."""

    sweep: str
    code: int


def seconds_of(budget: str | None) -> float | None:
    """Return the seconds in `90s`, `30m`, `2h` or a bare number of seconds; None for None."""
    if budget is None:
        return None
    found = parse_duration(budget, {"": 1, "s": 1, "m": 60, "h": 3600})
    if found is None:
        raise InputError(f"--time-budget {budget!r} is not a time: write 90s, 30m or 2h")
    return found


# A planned sweep measured by its head: the plan is written, and Snakemake driven through it and what it grows by.


def measured(folder: SweepFolder, request: Request, plan: Plan, budget_seconds: float | None, notices: Notices) -> int:
    """Run Snakemake until every planned run was tried; return its exit code."""
    from accelsweep.planning.plan import write_plan

    home, site = folder.home, plan.manifest.site
    with held(folder, cancel_old=request.cancel_old) as head, own_temporary_folder(folder, site) as temporary:
        if temporary is not None and temporary.parent != Path(tempfile.gettempdir()):
            say(f"TMPDIR is too long for sockets: temporary files go to {temporary}")
        deadline = None if budget_seconds is None else time.monotonic() + budget_seconds

        def watch(progress: SweepProgress) -> None:
            head.beat()
            notices.look(progress)

        queue = Queue(folder, engine_of(site), say, plan.manifest.settings.limits.queue_minutes)
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
    notices = Notices(named, checked_targets(request), warn)
    with notices.at_the_end():
        try:
            ended = _carried_out(home, request, notices)
        except BrokenPipeError:
            drop_output()
            raise AccelsweepError(
                "nobody reads the output of this command any more (its pipe was closed, as by `| head`), so it ended. "
                f"What was measured is kept. Go on, into a file: {request.again()} > sweep.txt 2>&1"
            ) from None
    notices.ended(ended.code)
    return ended


def _carried_out(home: Path, request: Request, notices: Notices) -> Ended:
    budget_seconds, began = seconds_of(request.time_budget), time.monotonic()
    plan = planned_after_searches(home, partial(planned, home, request))
    if isinstance(plan, tuple):
        wanted, first = plan
        code = _searched(home, request, wanted, first, budget_seconds, notices)
        plan = planned_after_searches(home, partial(planned, home, request))
        if isinstance(plan, tuple):
            say(f"{wanted.sweep} is not planned yet, because searches are left. Resume with: {request.again()}")
            return Ended(wanted.sweep, code or EXIT_INCOMPLETE)
        budget_seconds = None if budget_seconds is None else max(0.0, budget_seconds - time.monotonic() + began)
    notices.folder = folder = SweepFolder(home, plan.manifest.sweep)
    refuse_misfits(request, plan)
    refuse_short_budget(home, plan, budget_seconds)
    show_plan(home, plan)
    refuse_untaken_jobs(home, plan)
    code = measured(folder, request, plan, budget_seconds, notices)
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


def checked_targets(request: Request) -> tuple[Target, ...]:
    """Return where notices go. Raises InputError where none could be sent, and for a profile of no use here."""
    if engine := engine_behind(executor_of(find_profile(request.profile))):
        refuse_without(engine, f"--profile {request.profile}")
    targets = tuple(map(Target, request.notify))
    for target in targets:
        target.check()
    return targets


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
    home: Path, request: Request, wanted: Unsearched, first: Plan, budget_seconds: float | None, notices: Notices
) -> int:
    """Run the searches for automatic batches, a sweep of their own; return Snakemake's exit code."""
    notices.folder = folder = SweepFolder(home, first.manifest.sweep)
    refuse_misfits(request, first)
    tell_of_searches(wanted, first)
    show_plan(home, first)
    refuse_untaken_jobs(home, first)
    code = measured(folder, request, first, budget_seconds, notices)
    tell_of_batches(home, wanted)
    return code


def planned(home: Path, request: Request, batches: Batches) -> Plan:
    """Return the plan, after the trees of its versions were made."""
    from accelsweep.planning.plan import make_plan

    plan = partial(
        make_plan,
        home,
        request.overrides,
        name=request.name,
        add_repeats=request.add_repeats,
        until_decided=request.until_decided,
        profile=request.profile,
        batches=batches,
        fleet=request.fleet,
    )
    if not request.compares:
        return plan()
    from accelsweep.drive.versions.trees import trees_of

    assert request.name is not None, "`ab` names its sweep"
    with trees_of(SweepFolder(home, request.name), request.versions, request.pythons, request.pinned) as trees:
        return plan(trees=trees)


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
