"""Commands that measure, or say what would be measured."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

from accelsweep.base.errors import InputError
from accelsweep.cli.app import app
from accelsweep.commands.line.arguments import (
    AddRepeats,
    AsJson,
    CancelOld,
    Cfg,
    Claims,
    Detach,
    DryRun,
    Each,
    FailIf,
    Jobs,
    Name,
    Nodes,
    Notify,
    OneOrTwoSettings,
    Overrides,
    Profile,
    ProfileToCheck,
    Pythons,
    RetriedOutcome,
    Setting,
    SweepName,
    TimeBudget,
    Tolerance,
    TrackingUri,
    UntilDecided,
    Versions,
)
from accelsweep.commands.line.command_line import OfHydra

NOTIFY_VARIABLE = "ACCELSWEEP_NOTIFY"
"""The environment variable that holds an address for notices. No list of processes shows it, and no run inherits it."""


def _addresses(given: list[str] | None) -> tuple[str, ...]:
    """Return where notices go: the addresses that were given, or that of the environment."""
    return tuple(given or filter(None, [os.environ.pop(NOTIFY_VARIABLE, None)]))


@app.command()
def init(folder: Annotated[Path, typer.Argument(help="the folder; it is made where there is none")] = Path()) -> None:
    """Write a model, its data, an experiment and a test of your own to begin with. Overwrites nothing."""
    from accelsweep.commands.init import write_starter

    write_starter(folder)


@app.command(cls=OfHydra)
def run(
    overrides: Overrides = None,
    name: Name = None,
    profile: Profile = "local",
    jobs: Jobs = None,
    dry_run: DryRun = False,
    add_repeats: AddRepeats = 0,
    time_budget: TimeBudget = None,
    until_decided: UntilDecided = False,
    tracking_uri: TrackingUri = None,
    cancel_old: CancelOld = False,
    notify: Notify = None,
    detach: Detach = False,
    cfg: Cfg = None,
) -> None:
    """Plan a sweep, measure its missing runs, and write its report. The same command again resumes it."""
    from accelsweep.commands import plan as planning
    from accelsweep.commands.run import run as run_sweep
    from accelsweep.commands.running.request import Request

    if detach and (dry_run or cfg is not None):
        raise InputError(f"{'--dry-run' if dry_run else '--cfg'} answers in this terminal: leave --detach out")
    if cfg is not None:
        planning.print_config(Path.cwd(), overrides or [], cfg)
        return
    request = Request(
        overrides=tuple(overrides or ()),
        name=name,
        profile=profile,
        jobs=jobs,
        add_repeats=add_repeats,
        time_budget=time_budget,
        until_decided=until_decided,
        tracking_uri=tracking_uri,
        cancel_old=cancel_old,
        notify=_addresses(notify),
    )
    if dry_run:
        planning.print_plan(
            Path.cwd(),
            request.overrides,
            name=name,
            add_repeats=add_repeats,
            profile=profile,
            until_decided=until_decided,
        )
        return
    if detach:
        from accelsweep.commands.detached.hand_over import hand_over

        raise typer.Exit(hand_over(Path.cwd(), request))
    raise typer.Exit(run_sweep(Path.cwd(), request))


@app.command(cls=OfHydra)
def ab(
    words: Versions = None,
    python: Pythons = None,
    name: Name = None,
    profile: Profile = "local",
    jobs: Jobs = None,
    dry_run: DryRun = False,
    add_repeats: AddRepeats = 0,
    time_budget: TimeBudget = None,
    until_decided: UntilDecided = False,
    tracking_uri: TrackingUri = None,
    cancel_old: CancelOld = False,
    notify: Notify = None,
    fail_if: FailIf = None,
    as_json: AsJson = False,
    form: Annotated[str, typer.Option("--format", help="text, or github for annotations and a summary")] = "text",
) -> None:
    """Compare commits of your repository, or environments, measured side by side in each block."""
    from accelsweep.commands.ab import compare_versions, preview_versions, words_apart
    from accelsweep.commands.running.request import Request

    versions, overrides = words_apart(words or ())
    request = Request(
        overrides=overrides,
        versions=versions,
        pythons=tuple(python or ()),
        compares=True,
        name=name,
        profile=profile,
        jobs=jobs,
        add_repeats=add_repeats,
        time_budget=time_budget,
        until_decided=until_decided,
        tracking_uri=tracking_uri,
        cancel_old=cancel_old,
        notify=_addresses(notify),
    )
    if dry_run:
        preview_versions(Path.cwd(), request, fail_if, as_json=as_json, form=form)
        return
    raise typer.Exit(compare_versions(Path.cwd(), request, fail_if, as_json=as_json, form=form))


@app.command(cls=OfHydra)
def fleet(
    overrides: Overrides = None,
    nodes: Nodes = "all",
    each: Each = 3,
    tolerance: Tolerance = None,
    name: Name = None,
    profile: Profile = "slurm",
    jobs: Jobs = None,
    dry_run: DryRun = False,
    time_budget: TimeBudget = None,
    tracking_uri: TrackingUri = None,
    cancel_old: CancelOld = False,
    notify: Notify = None,
    as_json: AsJson = False,
) -> None:
    """Measure the same settings on each node of a cluster, and find nodes that are slower, hotter or throttled."""
    from accelsweep.commands.cluster.fleet import measure_fleet, preview_fleet
    from accelsweep.commands.running.request import Request
    from accelsweep.core.settings import TOLERANCE, Fleet

    request = Request(
        overrides=tuple(overrides or ()),
        fleet=Fleet(nodes=(), each=each, tolerance=TOLERANCE if tolerance is None else tolerance, asked=nodes),
        name=name,
        profile=profile,
        jobs=jobs,
        time_budget=time_budget,
        tracking_uri=tracking_uri,
        cancel_old=cancel_old,
        notify=_addresses(notify),
    )
    if dry_run:
        preview_fleet(Path.cwd(), request, as_json=as_json)
        return
    raise typer.Exit(measure_fleet(Path.cwd(), request, as_json=as_json))


@app.command(cls=OfHydra)
def plan(
    overrides: Overrides = None,
    name: Name = None,
    profile: ProfileToCheck = None,
    add_repeats: AddRepeats = 0,
    cfg: Cfg = None,
    as_json: AsJson = False,
) -> None:
    """Preview a sweep: settings, unsupported ones with reasons, time and cost. Writes nothing."""
    from accelsweep.commands import plan as planning

    if cfg is not None:
        if as_json:
            raise InputError("--cfg prints YAML, and --json the plan: leave one of them out")
        planning.print_config(Path.cwd(), overrides or [], cfg)
        return
    given = tuple(overrides or ())
    planning.print_plan(Path.cwd(), given, name=name, add_repeats=add_repeats, profile=profile, as_json=as_json)


@app.command()
def retry(
    name: SweepName,
    outcome: RetriedOutcome,
) -> None:
    """Open runs again for the next `accelsweep run`. Their records are kept as attempts."""
    from accelsweep.commands.retry import retry_runs

    retry_runs(Path.cwd(), name, outcome)


@app.command()
def claims(
    names: Claims = None,
    minutes: Annotated[float, typer.Option(min=0, help="start no run after this time")] = 30.0,
) -> None:
    """Put well-known claims about GPUs to the test on this machine, and write reports/claims."""
    from accelsweep.commands.claims import put_to_the_test

    raise typer.Exit(put_to_the_test(Path.cwd(), names or [], minutes))


@app.command()
def profile(
    name: SweepName,
    settings: OneOrTwoSettings,
    steps: Annotated[int, typer.Option(min=1, max=1000, help="profile so many steps")] = 10,
    tracking_uri: TrackingUri = None,
    as_json: AsJson = False,
) -> None:
    """Show where the time of a step goes, by operator and module, with a trace; of two settings the difference."""
    from accelsweep.commands.profile import profile_settings

    profile_settings(Path.cwd(), name, settings, steps, tracking_uri, as_json=as_json)


@app.command()
def debug(name: SweepName, setting: Setting) -> None:
    """Run one setting in the foreground, in a throw-away folder; breakpoint() and pdb work. Records stay untouched."""
    from accelsweep.commands.debug import debug_in_foreground

    raise typer.Exit(debug_in_foreground(Path.cwd(), name, setting))
