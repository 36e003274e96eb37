"""Commands that compare versions, nodes of a cluster, and claims with what is measured here."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from accelsweep.cli.app import app
from accelsweep.cli.measuring import addresses, detachable, hand_over
from accelsweep.commands.line.arguments import (
    AddRepeats,
    AsJson,
    CancelOld,
    Claims,
    Detach,
    DryRun,
    Each,
    FailIf,
    Jobs,
    KeepGoing,
    Name,
    NodesAsked,
    Notify,
    Overrides,
    Profile,
    Pythons,
    TimeBudget,
    Tolerance,
    TrackingUri,
    TwoVersions,
    UntilDecided,
)
from accelsweep.commands.line.command_line import OfHydra


@app.command(cls=OfHydra)
def ab(
    words: TwoVersions = None,
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
    keep_going: KeepGoing = False,
    notify: Notify = None,
    fail_if: FailIf = None,
    as_json: AsJson = False,
    form: Annotated[str, typer.Option("--format", help="text, or github for annotations and a summary")] = "text",
    detach: Detach = False,
) -> None:
    """Compare commits of your repository, or environments, measured side by side in each block."""
    from accelsweep.commands.ab import compare_versions, preview_versions, words_apart
    from accelsweep.commands.running.request import Request

    detachable(detach, {"--dry-run": dry_run, "--json": as_json, f"--format {form}": form != "text"})
    versions, overrides = words_apart(words or ())
    request = Request(
        overrides=overrides,
        versions=versions,
        pythons=tuple(python or ()),
        compares=True,
        fail_if=fail_if,
        name=name,
        profile=profile,
        jobs=jobs,
        add_repeats=add_repeats,
        time_budget=time_budget,
        until_decided=until_decided,
        tracking_uri=tracking_uri,
        cancel_old=cancel_old,
        keep_going=keep_going,
        notify=addresses(notify),
    )
    if dry_run:
        preview_versions(Path.cwd(), request, as_json=as_json, form=form)
        return
    if detach:
        raise typer.Exit(hand_over(Path.cwd(), request))
    raise typer.Exit(compare_versions(Path.cwd(), request, as_json=as_json, form=form))


@app.command(cls=OfHydra)
def fleet(
    overrides: Overrides = None,
    nodes: NodesAsked = "all",
    each: Each = 3,
    tolerance: Tolerance = None,
    name: Name = None,
    profile: Profile = "slurm",
    jobs: Jobs = None,
    dry_run: DryRun = False,
    time_budget: TimeBudget = None,
    tracking_uri: TrackingUri = None,
    cancel_old: CancelOld = False,
    keep_going: KeepGoing = False,
    notify: Notify = None,
    as_json: AsJson = False,
    detach: Detach = False,
) -> None:
    """Measure the same settings on each node of a cluster, and find nodes that are slower, hotter or throttled."""
    from accelsweep.commands.fleet import measure_fleet, preview_fleet
    from accelsweep.commands.running.request import Request
    from accelsweep.core.planned.settings import FLEET_TOLERANCE, Fleet

    detachable(detach, {"--dry-run": dry_run, "--json": as_json})
    request = Request(
        overrides=tuple(overrides or ()),
        fleet=Fleet(nodes=(), each=each, tolerance=FLEET_TOLERANCE if tolerance is None else tolerance, asked=nodes),
        name=name,
        profile=profile,
        jobs=jobs,
        time_budget=time_budget,
        tracking_uri=tracking_uri,
        cancel_old=cancel_old,
        keep_going=keep_going,
        notify=addresses(notify),
    )
    if dry_run:
        preview_fleet(Path.cwd(), request, as_json=as_json)
        return
    if detach:
        raise typer.Exit(hand_over(Path.cwd(), request))
    raise typer.Exit(measure_fleet(Path.cwd(), request, as_json=as_json))


@app.command()
def claims(
    names: Claims = None,
    minutes: Annotated[float, typer.Option(min=0, help="start no run after this time")] = 30.0,
    detach: Detach = False,
) -> None:
    """Put well-known claims about GPUs to the test on this machine, and write reports/claims."""
    from accelsweep.commands.running.claims import put_to_the_test
    from accelsweep.commands.running.request import Request

    if detach:
        asked = Request(overrides=(), claims=tuple(names or ()), time_budget=f"{60.0 * minutes:f}s")
        raise typer.Exit(hand_over(Path.cwd(), asked))
    raise typer.Exit(put_to_the_test(Path.cwd(), names or [], minutes))
