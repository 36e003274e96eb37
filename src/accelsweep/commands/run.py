"""`accelsweep run`: plan, let Snakemake run the blocks, follow them, copy them to MLflow, print the results."""

from __future__ import annotations

import contextlib
import re
import shlex
import sys
import time
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from accelsweep.base.errors import EXIT_INCOMPLETE, EXIT_INTERRUPTED, EXIT_OK, InputError
from accelsweep.base.shipped import shipped_root
from accelsweep.commands.first.batches import planned_after_searches, tell_of_batches, tell_of_searches
from accelsweep.commands.further.looks import plan_after_look
from accelsweep.commands.further.pilot import plan_after_pilot, refuse_short_budget
from accelsweep.commands.plan import show_plan
from accelsweep.drive import publisher
from accelsweep.drive.console import say
from accelsweep.drive.delivery import Target
from accelsweep.drive.fork_server import fork_server
from accelsweep.drive.head import held
from accelsweep.drive.jobs.queue import Queue
from accelsweep.drive.jobs.settle import settle_old_jobs
from accelsweep.drive.last_word import why_snakemake_ended
from accelsweep.drive.notices import Notices
from accelsweep.drive.processes import Child
from accelsweep.drive.profiles import check_profile, find_profile
from accelsweep.drive.progress import SweepProgress
from accelsweep.drive.ready import make_ready
from accelsweep.drive.results import print_results
from accelsweep.drive.standing import forget_altered_report, note_standing, stands
from accelsweep.drive.temporary import own_temporary_folder
from accelsweep.engines.ask import refuse_without
from accelsweep.engines.known import engine_of
from accelsweep.state.folders import SweepFolder

if TYPE_CHECKING:
    from collections.abc import Callable

    from accelsweep.plan.automatic import Batches
    from accelsweep.plan.make import Plan, Unsearched

_POLL_SECONDS = 0.5


@dataclass(frozen=True)
class Request:
    """The user's arguments of `run`, or of `ab`, which `compares` `versions` or the environments of `pythons`."""

    overrides: tuple[str, ...]
    versions: tuple[str, ...] = ()
    pythons: tuple[str, ...] = ()
    compares: bool = False
    until_decided: bool = False
    name: str | None = None
    profile: str = "local"
    jobs: int | None = None
    add_repeats: int = 0
    time_budget: str | None = None
    tracking_uri: str | None = None
    cancel_old: bool = False
    notify: tuple[str, ...] = ()

    def again(self) -> str:
        """Return the command that continues this sweep; added repeats are in the plan already.

        The addresses of notices are cut, because they hold secrets.
        """
        options = {"--name": self.name, "--jobs": self.jobs, "--tracking-uri": self.tracking_uri}
        options |= {"--profile": self.profile if self.profile != "local" else None}
        given = [part for option, value in options.items() if value is not None for part in (option, str(value))]
        given += ["--until-decided"] if self.until_decided else []
        given += [part for address in self.notify for part in ("--notify", Target(address).shown)]
        environments = [part for path in self.pythons for part in ("--python", path)]
        command = ["ab", *self.versions, *environments] if self.compares else ["run"]
        return shlex.join(["accelsweep", *command, *self.overrides, *given])


@dataclass(frozen=True)
class Ended:
    """How `run` ended: the sweep's name, and 0 if every planned run is settled, 1 if not, 130 if interrupted."""

    sweep: str
    code: int


def run(home: Path, request: Request) -> int:
    """Run the sweep to its report; return the exit code."""
    return carried_out(home, request).code


def carried_out(home: Path, request: Request) -> Ended:
    """Run the sweep to its report; return how that ended."""
    find_profile(request.profile)
    targets = tuple(map(Target, request.notify))
    for target in targets:
        target.check()
    budget_seconds, began = seconds_of(request.time_budget), time.monotonic()
    plan = planned_after_searches(home, partial(_planned, home, request))
    if isinstance(plan, tuple):
        wanted, first = plan
        code = _searched(home, request, wanted, first, budget_seconds)
        plan = planned_after_searches(home, partial(_planned, home, request))
        if isinstance(plan, tuple):
            say(f"{wanted.sweep} is not planned yet, because searches are left. Resume with: {request.again()}")
            return Ended(wanted.sweep, code or EXIT_INCOMPLETE)
        budget_seconds = None if budget_seconds is None else max(0.0, budget_seconds - time.monotonic() + began)
    _refuse_misfits(request, plan)
    refuse_short_budget(home, plan, budget_seconds)
    show_plan(home, plan)
    folder = SweepFolder(home, plan.manifest.sweep)
    notices = Notices(folder, targets, _warn)
    with notices.at_the_end():
        code = _measured(folder, request, plan, budget_seconds, notices)
        if code == EXIT_INTERRUPTED:
            say(f"\ninterrupted; every finished run is kept. Resume with: {request.again()}")
        else:
            code = _conclude(folder, code)
    notices.ended(code)
    return Ended(folder.name, code)


def _refuse_misfits(request: Request, plan: Plan) -> None:
    """Raise an error where the site cannot be driven with the profile that was given, or not from here."""
    site = plan.manifest.site
    check_profile(find_profile(request.profile), site)
    if engine := engine_of(site):
        refuse_without(engine, site.name)


def _searched(home: Path, request: Request, wanted: Unsearched, first: Plan, budget_seconds: float | None) -> int:
    """Run the searches for automatic batches, a sweep of their own; return Snakemake's exit code."""
    _refuse_misfits(request, first)
    tell_of_searches(wanted, first)
    show_plan(home, first)
    folder = SweepFolder(home, first.manifest.sweep)
    code = _measured(folder, request, first, budget_seconds, Notices(folder, (), _warn))
    tell_of_batches(home, wanted)
    return code


def _planned(home: Path, request: Request, batches: Batches) -> Plan:
    """Return the plan, after the trees of its versions were made."""
    from accelsweep.plan.make import make_plan

    plan = partial(
        make_plan,
        home,
        request.overrides,
        name=request.name,
        add_repeats=request.add_repeats,
        until_decided=request.until_decided,
        profile=request.profile,
        batches=batches,
    )
    if not request.compares:
        return plan()
    from accelsweep.drive.versions.trees import trees_of

    assert request.name is not None, "`ab` names its sweep"
    with trees_of(SweepFolder(home, request.name), request.versions, request.pythons) as trees:
        return plan(trees=trees)


def _measured(folder: SweepFolder, request: Request, plan: Plan, budget_seconds: float | None, notices: Notices) -> int:
    """Run Snakemake until every planned run was tried; return its exit code."""
    from accelsweep.plan.make import write_plan

    home, site = folder.home, plan.manifest.site
    with held(folder, cancel_old=request.cancel_old) as head, own_temporary_folder(folder, site):
        deadline = None if budget_seconds is None else time.monotonic() + budget_seconds

        def watch(progress: SweepProgress) -> None:
            head.beat()
            notices.look(progress)

        def drive(plan: Plan) -> int:
            queue = Queue(folder, engine_of(site), say, plan.manifest.settings.limits.queue_minutes)
            options = _snakemake_options(request, plan)
            code = _drive(folder, request, options, queue, deadline, watch)
            return _drive(folder, request, options, queue.anew(), deadline, watch) if queue.forgotten else code

        if engine := engine_of(site):
            settle_old_jobs(folder, engine, say, cancel=request.cancel_old, beat=head.beat)
        write_plan(home, plan)  # only now: the plan of a sweep that is being run belongs to its head
        make_ready(folder, _warn)
        forget_altered_report(folder)
        whole = stands(folder, request.tracking_uri)
        with contextlib.nullcontext() if whole else fork_server(folder, plan):
            code = EXIT_OK if whole else drive(plan)
            while further := _further(folder, request, plan, code, deadline):
                plan = further
                show_plan(home, plan)
                write_plan(home, plan)
                code = drive(plan)
    if code == EXIT_OK:
        note_standing(folder)
    return code


def _warn(line: str) -> None:
    say(line, err=True)


def seconds_of(budget: str | None) -> float | None:
    """Return the seconds in `90s`, `30m`, `2h` or a bare number of seconds; None for None."""
    if budget is None:
        return None
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([smh]?)", budget.strip())
    if match is None:
        raise InputError(f"--time-budget {budget!r} is not a time: write 90s, 30m or 2h")
    return float(match[1]) * {"": 1, "s": 1, "m": 60, "h": 3600}[match[2]]


def _further(folder: SweepFolder, request: Request, plan: Plan, code: int, deadline: float | None) -> Plan | None:
    """Return the plan with the blocks that `repeats: auto` adds; None after an interruption or a spent budget."""
    if code == EXIT_INTERRUPTED or folder.stop.exists():
        return None
    left = None if deadline is None else deadline - time.monotonic()
    after = plan_after_look if request.until_decided else plan_after_pilot
    return after(folder.home, plan, request.overrides, request.name, left)


def _drive(
    folder: SweepFolder,
    request: Request,
    options: list[str],
    queue: Queue,
    deadline: float | None,
    watch: Callable[[SweepProgress], None],
) -> int:
    """Run Snakemake and the publisher to their ends, and call `watch` twice a second meanwhile.

    No run begins after `deadline`, on the monotonic clock. Snakemake is ended where it waits for jobs that Slurm has
    forgotten.
    """
    progress, uri = SweepProgress.begin(folder), request.tracking_uri
    with publisher.follow(folder, uri) as following, _snakemake(folder, options) as snakemake:
        try:
            with progress.shown():
                while snakemake.running():
                    progress.update()
                    watch(progress)
                    queue.update()
                    if queue.forgotten:
                        say("Slurm has forgotten the jobs that Snakemake waits for (MinJobAge): starting it again")
                        snakemake.interrupt()
                    deadline = _stop_at(folder, deadline)
                    time.sleep(_POLL_SECONDS)
                progress.update()
                watch(progress)
        except KeyboardInterrupt:
            say("\nstopping: ending the current run, keeping the finished ones ...", err=True)
            snakemake.interrupt()
            following.finish()
            return EXIT_INTERRUPTED
        publisher.finish(following, folder, uri, _warn)
    return snakemake.code


def _stop_at(folder: SweepFolder, deadline: float | None) -> float | None:
    if deadline is None or time.monotonic() < deadline:
        return deadline
    folder.stop.touch()
    say("the time budget is spent: no further run is started")
    return None


def _snakemake_options(request: Request, plan: Plan) -> list[str]:
    options = ["--profile", str(find_profile(request.profile))]
    site = plan.manifest.site
    engine = engine_of(site)
    jobs = request.jobs or (site.jobs.max_jobs if engine else None)
    options += ["--jobs", str(jobs)] if jobs else []
    options += engine.options(plan.manifest.sweep) if engine else []
    slots = max((cell.config.measure.concurrency for cell in plan.cells), default=1)
    if site.scheduler == "local" and slots > 1:
        options += ["--resources", f"timing={slots}"]
    return options


_SHARED = ("persistence", "input-output", "software-deployment", "sources", "storage-local-copies")
"""What Snakemake's jobs share. Its cache of remote sources is not among them: it would be made in HOME, empty."""


def _snakemake(folder: SweepFolder, options: list[str]) -> Child:
    command = [
        sys.executable,
        "-m",
        "snakemake",
        "--snakefile",
        str(shipped_root() / "Snakefile"),
        "--nolock",
        "--shared-fs-usage",
        *_SHARED,
        *options,
    ]
    # With its folder, because Snakemake reads a bare 1e3 or 007 as a number.
    command += ["--config", f"sweep=sweeps/{folder.name}", "--", "told"]
    return Child.start(command, cwd=folder.home, log=folder.snakemake_log)


def _conclude(folder: SweepFolder, code: int) -> int:
    """Print the results, and say last what went wrong where Snakemake ended with `code`; return the exit code."""
    log = folder.snakemake_log
    why = f"{why_snakemake_ended(log, code)}; {log.relative_to(folder.home)} has more. The same command goes on"
    if not (folder.findings.is_file() and (folder.report / "index.html").is_file()):
        say(f"no report was written, because Snakemake failed: {why}", err=True)
        return EXIT_INCOMPLETE
    told = print_results(folder)
    if code and not told.explained:
        say(f"Snakemake ended early: {why}", err=True)
    return EXIT_INCOMPLETE if told.unsettled or code else EXIT_OK
