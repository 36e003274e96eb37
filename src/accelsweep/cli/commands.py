"""Commands that measure, or say what would be measured."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from accelsweep.cli.options import (
    AddRepeats,
    After,
    AnySweep,
    AsJson,
    Before,
    CancelOld,
    Cfg,
    Claims,
    Detach,
    DryRun,
    Each,
    FailIf,
    HistorySources,
    Jobs,
    KeepGoing,
    ListedOutcome,
    Name,
    NodesAsked,
    Notify,
    OneOrTwoSettings,
    Overrides,
    Profile,
    ProfileToCheck,
    Pythons,
    RetriedOutcome,
    Setting,
    Sort,
    SweepName,
    Sweeps,
    TimeBudget,
    Tolerance,
    TrackingUri,
    TwoVersions,
    UntilDecided,
)
from accelsweep.cli.typer_app import OfHydra, app
from accelsweep.errors import InputError

if TYPE_CHECKING:
    from accelsweep.driver.run_sweep import Request

NOTIFY_VARIABLE = "ACCELSWEEP_NOTIFY"
"""The environment variable that holds an address for notices. No list of processes shows it, and no run inherits it."""


def addresses(given: list[str] | None) -> tuple[str, ...]:
    """Return where notices go: the addresses that were given, or that of the environment."""
    return tuple(given or filter(None, [os.environ.pop(NOTIFY_VARIABLE, None)]))


def detachable(detach: bool, answers_here: Mapping[str, bool]) -> None:
    """Refuse to `detach` a command that has an option which answers in the terminal."""
    if detach and (given := next((option for option, is_given in answers_here.items() if is_given), None)):
        raise InputError(f"{given} answers in this terminal: leave --detach out")


def hand_over(home: Path, request: Request) -> int:
    """Hand the head of a command over; return the exit code."""
    from accelsweep.commands.detached import hand_over as handing

    return handing.hand_over(home, request)


@app.command()
def init(folder: Annotated[Path, typer.Argument(help="the folder; it is made where there is none")] = Path()) -> None:
    """Write a model, its data, an experiment and a test of your own to begin with. Overwrites nothing."""
    from accelsweep.cli.sweeps import write_starter

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
    keep_going: KeepGoing = False,
    notify: Notify = None,
    detach: Detach = False,
    cfg: Cfg = None,
) -> None:
    """Plan a sweep, measure its missing runs, and write its report. The same command again resumes it."""
    from accelsweep.cli import sweeps as planning
    from accelsweep.cli.sweeps import run as run_sweep
    from accelsweep.driver.run_sweep import Request

    detachable(detach, {"--dry-run": dry_run, "--cfg": cfg is not None})
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
        keep_going=keep_going,
        notify=addresses(notify),
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
    raise typer.Exit((hand_over if detach else run_sweep)(Path.cwd(), request))


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
    from accelsweep.cli import sweeps as planning

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
    from accelsweep.cli.runs import retry_runs

    retry_runs(Path.cwd(), name, outcome)


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


# Commands that compare versions, nodes of a cluster, and claims with what is measured here.


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
    from accelsweep.driver.run_sweep import Request

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
    from accelsweep.config.sweep_options import FLEET_TOLERANCE, Fleet
    from accelsweep.driver.run_sweep import Request

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
    from accelsweep.driver.run_sweep import Request

    if detach:
        asked = Request(overrides=(), claims=tuple(names or ()), time_budget=f"{60.0 * minutes:f}s")
        raise typer.Exit(hand_over(Path.cwd(), asked))
    raise typer.Exit(put_to_the_test(Path.cwd(), names or [], minutes))


# Commands that show what was measured.


@app.command()
def status(
    name: AnySweep = None,
    as_json: AsJson = False,
) -> None:
    """Show planned, running and finished runs, results and reports; on a cluster, the jobs in its queue too."""
    from accelsweep.cli.status import print_status

    raise typer.Exit(print_status(Path.cwd(), name, as_json=as_json))


@app.command()
def attach(name: SweepName) -> None:
    """Show what a detached head prints, until its end. Ctrl-C leaves the head to its work."""
    from accelsweep.commands.attach import attach as follow

    raise typer.Exit(follow(Path.cwd(), name))


@app.command()
def runs(
    name: SweepName,
    outcome: ListedOutcome = None,
    sort: Sort = "plan",
    as_json: AsJson = False,
) -> None:
    """List the sweep's runs with outcome, reason, rate, doubts, setting and folder. Writes nothing."""
    from accelsweep.cli.runs import print_runs

    print_runs(Path.cwd(), name, outcome, sort=sort, as_json=as_json)


@app.command()
def report(names: Sweeps) -> None:
    """Write the report again from the records. Several sweeps get one report, reports/A+B."""
    from accelsweep.driver import finalize
    from accelsweep.driver.console import say

    say(finalize.report(Path.cwd(), names))


@app.command()
def compare(
    before: Before,
    after: After,
    fail_if: FailIf = None,
    as_json: AsJson = False,
) -> None:
    """Compare two sweeps setting by setting, with intervals and verdicts."""
    from accelsweep.cli.sweeps import compare_sweeps

    raise typer.Exit(compare_sweeps(Path.cwd(), before, after, fail_if, as_json=as_json))


@app.command()
def history(
    names: HistorySources,
    as_json: AsJson = False,
) -> None:
    """Show the rate of each setting over commits or dates, with the places where it changed, and write a page."""
    from accelsweep.commands.history import show_history

    show_history(Path.cwd(), names, as_json=as_json)


@app.command()
def project(
    name: SweepName,
    onto: Annotated[
        str | None, typer.Option(help="devices by their keys, e.g. h100-sxm,l4 (default: those of the report)")
    ] = None,
    prices: Annotated[str | None, typer.Option(help="a file of prices, or its name in conf/prices")] = None,
    as_json: AsJson = False,
) -> None:
    """Project the best measured setting onto devices that you do not have. No measurement, and no verdict."""
    from accelsweep.commands.project import project_sweep

    project_sweep(Path.cwd(), name, onto, prices, as_json=as_json)


@app.command()
def advise(
    name: SweepName,
    epochs: Annotated[float, typer.Option(help="passes over the data that the training takes")],
    deadline: Annotated[str | None, typer.Option(help="when it must be done: 90m, 24h, 3d, 2w")] = None,
    budget: Annotated[float | None, typer.Option(help="what it may cost, in USD")] = None,
    samples: Annotated[float | None, typer.Option(help="samples of an epoch (default: those of the data set)")] = None,
    onto: Annotated[
        str | None, typer.Option(help="devices by their keys, e.g. h100-sxm,l4 (default: those with a price)")
    ] = None,
    prices: Annotated[str | None, typer.Option(help="lists of prices, e.g. cloud,bought, or files")] = None,
    batch: Annotated[int | None, typer.Option(help="samples of a step on each device (default: as measured)")] = None,
    as_json: AsJson = False,
) -> None:
    """Say how much hardware a training takes, and which is the cheapest: measured here, or projected."""
    from accelsweep.commands.advise import Question, advise_training

    asked = Question(epochs, samples, deadline, budget, onto, prices, batch)
    advise_training(Path.cwd(), name, asked, as_json=as_json)


@app.command()
def publish(
    name: SweepName,
    tracking_uri: TrackingUri = None,
    anew: Annotated[
        bool, typer.Option("--anew", help="set the old copy aside first, and fill a new one from the records")
    ] = False,
) -> None:
    """Copy the sweep's records to MLflow. Only missing and changed runs are sent."""
    from accelsweep.cli.sweeps import publish_now
    from accelsweep.driver.console import say

    say(publish_now(Path.cwd(), name, tracking_uri, anew=anew))


@app.command()
def ui(
    port: Annotated[
        int | None, typer.Option(min=1, max=65535, help="port on 127.0.0.1 (default: 5000, or any free one)")
    ] = None,
    browser: Annotated[
        bool | None,
        typer.Option("--open/--no-open", help="open the latest sweep in the browser (default: on a desktop)"),
    ] = None,
    tracking_uri: TrackingUri = None,
) -> None:
    """Open MLflow's UI on this folder's results, on loopback, until Ctrl-C."""
    from accelsweep.driver.console import say
    from accelsweep.tracking.ui import serve_ui

    raise typer.Exit(serve_ui(Path.cwd(), port=port, tracking_uri=tracking_uri, browser=browser, echo=say))


# Commands about files that come and go, and about the machine.


@app.command()
def export(
    name: SweepName,
    to: Annotated[Path | None, typer.Option(help="the file to write (default: NAME.zip)", show_default=False)] = None,
) -> None:
    """Pack a sweep into one file: plan, records, findings, report, versions, checksums. Writes its report again."""
    from accelsweep.commands.exchange.archives import export_sweep

    export_sweep(Path.cwd(), name, to)


@app.command("import")
def import_(
    file: Annotated[Path, typer.Argument(help="the archive that `export` wrote, or with --from a published file")],
    name: Annotated[str | None, typer.Option("--name", help="its name here (default: as exported)")] = None,
    source: Annotated[
        str | None, typer.Option("--from", help="who published it: timm, lambda, mlperf, milabench")
    ] = None,
    device: Annotated[
        str | None, typer.Option("--device", help="with --from: the device, where the file has none")
    ] = None,
) -> None:
    """Bring an exported sweep, or others' published results, into this folder. All is checked before it is written."""
    if source is not None:
        from accelsweep.commands.exchange.external import import_rows

        import_rows(Path.cwd(), file, source, device, name)
        return
    if device is not None:
        raise InputError("--device is for published results: say with --from who published them")
    from accelsweep.commands.exchange.archives import import_archive

    import_archive(Path.cwd(), file, name)


@app.command()
def doctor(
    overrides: Annotated[list[str] | None, typer.Argument(help="site=NAME: try this cluster too")] = None,
    job: Annotated[
        float | None,
        typer.Option(metavar="MINUTES", help="submit a short job to each kind of node; wait so long for it"),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Check whether this machine, or the cluster of site=NAME, can measure, and list its devices and versions."""
    from accelsweep.cli.doctor import examine

    raise typer.Exit(examine(Path.cwd(), overrides or (), job_minutes=job, as_json=as_json))


@app.command()
def site(
    name: Annotated[str, typer.Argument(help="the site's name: conf/site/NAME.yaml")],
    from_slurm: Annotated[bool, typer.Option("--from-slurm", help="from what sinfo lists on this login node")] = False,
    from_grid_engine: Annotated[
        bool, typer.Option("--from-grid-engine", help="from what qhost and qconf list on this login node")
    ] = False,
) -> None:
    """Draft a site file for this cluster into conf/site, with comments on what its engine does not know."""
    from accelsweep.cli.sweeps import write_draft

    asked = {"slurm": from_slurm, "grid_engine": from_grid_engine}
    write_draft(Path.cwd(), name, [engine for engine, is_asked in asked.items() if is_asked])


@app.command()
def clean(
    name: SweepName,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="do not ask")] = False,
) -> None:
    """Delete sweeps/NAME and reports/NAME, records included. MLflow keeps its copy."""
    from accelsweep.cli.sweeps import delete_sweep

    delete_sweep(Path.cwd(), name, ask=None if yes else typer.confirm)
