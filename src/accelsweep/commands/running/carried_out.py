"""A sweep carried out: planned, its blocks run by Snakemake and followed, copied to MLflow, and its results printed."""

from __future__ import annotations

import time
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from accelsweep.base.errors import EXIT_INCOMPLETE, EXIT_INTERRUPTED, EXIT_OK, AccelsweepError
from accelsweep.commands.further.pilot import refuse_short_budget
from accelsweep.commands.planning.batches import planned_after_searches, tell_of_batches, tell_of_searches
from accelsweep.commands.planning.shown import show_plan
from accelsweep.commands.running.measured import measured
from accelsweep.commands.running.request import Ended, Request, seconds_of
from accelsweep.core.findings.findings import Findings
from accelsweep.core.planned.plans import Manifest
from accelsweep.drive.following.delivery import Target
from accelsweep.drive.following.notices import Notices
from accelsweep.drive.jobs.failures import refuse_before_submission
from accelsweep.drive.ready import refuse_narrow_limits
from accelsweep.drive.results import print_results
from accelsweep.drive.snakemake.last_word import why_snakemake_ended
from accelsweep.drive.snakemake.profiles import check_profile, executor_of, find_profile
from accelsweep.drive.terminal.console import drop_output, say, warn
from accelsweep.engines.ask import refuse_without
from accelsweep.engines.known import engine_behind, engine_of
from accelsweep.state.folders import SweepFolder

if TYPE_CHECKING:
    from accelsweep.plan.automatic import Batches
    from accelsweep.plan.make import Plan
    from accelsweep.plan.searched import Unsearched


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
