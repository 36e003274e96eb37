"""The core commands. Each imports what it needs when called, so that `--help` stays fast."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from accelsweep.cli.options import (
    AddRepeats,
    After,
    AnySweep,
    AsJson,
    Before,
    Cfg,
    DryRun,
    Entry,
    FailIf,
    ListedOutcome,
    Minutes,
    Name,
    Overrides,
    ProfileToCheck,
    RetriedOutcome,
    Sort,
    SweepName,
    Sweeps,
    TrackingUri,
)
from accelsweep.cli.run_options import measures, run_elsewhere, with_sources
from accelsweep.cli.typer_app import HydraCommand, app
from accelsweep.driver.request import Request
from accelsweep.errors import InputError


@app.command()
def init(folder: Annotated[Path, typer.Argument(help="the folder; created if needed")] = Path()) -> None:
    """Describe the project in this folder in accelsweep.yaml; in a folder without one, write a starter."""
    from accelsweep.cli.project import describe_project
    from accelsweep.cli.sweeps import write_starter

    if not (folder.is_dir() and describe_project(folder.resolve())):
        write_starter(folder)


@app.command()
def apply(
    name: SweepName, *, force: Annotated[bool, typer.Option("--force", help="overwrite the file")] = False
) -> None:
    """Write the recommended setting into your project's config, or print the options to type."""
    from accelsweep.cli.project import apply_recommendation

    apply_recommendation(Path.cwd(), name, force=force)


@app.command(cls=HydraCommand)
@measures()
def run(request: Request, overrides: Overrides = None, *, dry_run: DryRun = False, cfg: Cfg = None) -> None:
    """Plan a sweep, measure its missing runs and write its report. The same command resumes it."""
    from accelsweep.driver.plan_preview import plan_to_show, show_plan
    from accelsweep.driver.run_sweep import run_sweep

    request = replace(request, overrides=tuple(overrides or ()))
    run_elsewhere(request, {"--dry-run": dry_run, "--cfg": cfg is not None})
    if cfg is not None:
        from accelsweep.cli.sweeps import print_config

        print_config(Path.cwd(), request.overrides, cfg)
    elif dry_run:
        show_plan(Path.cwd(), plan_to_show(Path.cwd(), request))
    else:
        raise typer.Exit(run_sweep(Path.cwd(), request).code)


@app.command(cls=HydraCommand)
def plan(
    overrides: Overrides = None,
    entry: Entry = None,
    minutes: Minutes = None,
    name: Name = None,
    profile: ProfileToCheck = None,
    add_repeats: AddRepeats = 0,
    cfg: Cfg = None,
    as_json: AsJson = False,
) -> None:
    """Preview a sweep: settings, unsupported ones with reasons, time and cost. Writes nothing."""
    if cfg is not None:
        from accelsweep.cli.sweeps import print_config

        if as_json:
            raise InputError("--cfg prints YAML and --json prints the plan: use only one of them")
        print_config(Path.cwd(), overrides or [], cfg)
        return
    from accelsweep.driver.plan_preview import plan_to_show, show_plan

    request = Request(
        tuple(overrides or ()),
        entry=entry,
        minutes=minutes,
        name=name,
        profile=profile or "local",
        add_repeats=add_repeats,
    )
    show_plan(Path.cwd(), plan_to_show(Path.cwd(), request, keep_profile=profile is None), as_json=as_json)


@app.command()
def retry(name: SweepName, outcome: RetriedOutcome) -> None:
    """Re-open runs for the next `accelsweep run`. Their records are kept as attempts."""
    from accelsweep.cli.runs import retry_runs

    retry_runs(Path.cwd(), name, outcome)


@app.command()
def status(name: AnySweep = None, as_json: AsJson = False) -> None:
    """Show planned, running and finished runs, results and reports; on a cluster, also the jobs in the queue."""
    from accelsweep.cli.status import print_status

    raise typer.Exit(print_status(Path.cwd(), name, as_json=as_json))


@app.command()
def runs(name: SweepName, outcome: ListedOutcome = None, sort: Sort = "plan", as_json: AsJson = False) -> None:
    """List the sweep's runs with outcome, reason, rate, doubts, setting and folder. Writes nothing."""
    from accelsweep.cli.runs import print_runs

    print_runs(Path.cwd(), name, outcome, sort=sort, as_json=as_json)


@app.command()
def report(names: Sweeps) -> None:
    """Regenerate the report from the records. Several sweeps are merged into one report, reports/A+B."""
    from accelsweep.driver.console import say
    from accelsweep.driver.finalize import report_sweeps

    say(report_sweeps(Path.cwd(), names))


@app.command()
def compare(before: Before, after: After, fail_if: FailIf = None, as_json: AsJson = False) -> None:
    """Compare two sweeps setting by setting, with intervals and verdicts."""
    from accelsweep.cli.sweeps import compare_sweeps

    raise typer.Exit(compare_sweeps(Path.cwd(), before, after, fail_if, as_json=as_json))


@app.command()
def publish(
    name: SweepName,
    tracking_uri: TrackingUri = None,
    anew: Annotated[
        bool, typer.Option("--anew", help="set the old copy aside first, and publish all records again")
    ] = False,
) -> None:
    """Copy the sweep's records to MLflow. Only missing and changed runs are sent."""
    from accelsweep.cli.sweeps import publish_now
    from accelsweep.driver.console import say

    say(publish_now(Path.cwd(), name, tracking_uri, reset=anew))


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
    """Open MLflow's UI for this folder's results on the loopback interface, until Ctrl-C."""
    from accelsweep.driver.console import say
    from accelsweep.tracking.ui import serve_ui

    raise typer.Exit(serve_ui(Path.cwd(), port=port, tracking_uri=tracking_uri, browser=browser, echo=say))


@app.command()
def doctor(
    overrides: Annotated[list[str] | None, typer.Argument(help="site=NAME: check this cluster too")] = None,
    entry: Annotated[
        str | None,
        typer.Option(help="check this training script too: 'python src/train.py' (default: search)"),
    ] = None,
    job: Annotated[
        float | None,
        typer.Option(metavar="MINUTES", help="submit a short job to each kind of node, and wait this long for it"),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Check that this machine, or the cluster of site=NAME, is ready to measure, and list its devices and versions."""
    from accelsweep.cli.doctor import examine

    raise typer.Exit(examine(Path.cwd(), overrides or (), entry=entry, job_minutes=job, as_json=as_json))


@app.command()
@with_sources
def site(name: Annotated[str, typer.Argument(help="the site's name: conf/site/NAME.yaml")], **sources: bool) -> None:
    """Draft a site file for this cluster in conf/site, with comments on what its scheduler does not report."""
    from accelsweep.cli.sweeps import write_draft

    write_draft(Path.cwd(), name, [scheduler for scheduler, is_asked in sources.items() if is_asked])


@app.command()
def clean(
    name: SweepName,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="do not ask for confirmation")] = False,
) -> None:
    """Delete sweeps/NAME and reports/NAME, including records. MLflow keeps its copy."""
    from accelsweep.cli.sweeps import delete_sweep

    delete_sweep(Path.cwd(), name, ask=None if yes else typer.confirm)
