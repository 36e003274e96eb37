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
    Summary,
    SweepName,
    Sweeps,
    TrackingUri,
)
from accelsweep.cli.run_options import measures, run_elsewhere, with_sources
from accelsweep.cli.typer_app import command
from accelsweep.driver.request import Request
from accelsweep.errors import InputError


@command(
    "Measure",
    {
        "accelsweep init": "describe the project in this folder",
        "accelsweep init mine": "a folder with a model, data and an experiment, ready to run",
    },
)
def init(folder: Annotated[Path, typer.Argument(help="the folder; created if needed")] = Path()) -> None:
    """Describe your project in accelsweep.yaml, or write a starter."""
    from accelsweep.cli.project import describe_project
    from accelsweep.cli.sweeps import write_starter

    if not (folder.is_dir() and describe_project(folder.resolve())):
        write_starter(folder)


@command(
    "Decide",
    {
        "accelsweep apply train": "what the sweep `train` recommends",
        "accelsweep apply train --force": "replace the file that an earlier `apply` wrote",
    },
)
def apply(
    name: SweepName, *, force: Annotated[bool, typer.Option("--force", help="overwrite the file")] = False
) -> None:
    """Write the recommended setting into your project's config.

    For a script with options, it prints the command to type instead.
    """
    from accelsweep.cli.project import apply_recommendation

    apply_recommendation(Path.cwd(), name, force=force)


@command(
    "Measure",
    {
        "accelsweep run batch_size=64,256 precision=32-true,bf16-mixed": "your own training script: four settings",
        "accelsweep run experiment=quickstart": "the shipped quickstart",
    },
    overrides=True,
)
@measures()
def run(request: Request, overrides: Overrides = None, *, dry_run: DryRun = False, cfg: Cfg = None) -> None:
    """Measure settings and write a report. The same command resumes an interrupted sweep."""
    from accelsweep.driver.plan_preview import preview_plan
    from accelsweep.driver.run_sweep import run_sweep

    request = replace(request, overrides=tuple(overrides or ()))
    run_elsewhere(request, {"--dry-run": dry_run, "--cfg": cfg is not None})
    if cfg is not None:
        from accelsweep.cli.sweeps import print_config

        print_config(Path.cwd(), request.overrides, cfg)
    elif dry_run:
        preview_plan(Path.cwd(), request)
    else:
        raise typer.Exit(run_sweep(Path.cwd(), request).code)


@command(
    "Measure",
    {
        "accelsweep plan batch_size=64,256": "what `accelsweep run` would do with the same words",
        "accelsweep plan experiment=quickstart --json": "for a script",
    },
    overrides=True,
)
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
    """Show what `run` would measure, with its estimated time and cost. Writes nothing."""
    if cfg is not None:
        from accelsweep.cli.sweeps import print_config

        if as_json:
            raise InputError("--cfg prints YAML and --json prints the plan: use only one of them")
        print_config(Path.cwd(), overrides or [], cfg)
        return
    from accelsweep.driver.plan_preview import preview_plan

    request = Request(
        tuple(overrides or ()),
        entry=entry,
        minutes=minutes,
        name=name,
        profile=profile or "local",
        add_repeats=add_repeats,
    )
    preview_plan(Path.cwd(), request, keep_profile=profile is None, as_json=as_json)


@command(
    "Manage",
    {
        "accelsweep retry quickstart --outcome disturbed": "runs that other work disturbed",
        "accelsweep retry quickstart --outcome out_of_memory": "runs that did not fit, after a change to the machine",
    },
)
def retry(name: SweepName, outcome: RetriedOutcome) -> None:
    """Mark failed or disturbed runs to be measured again.

    The next `accelsweep run` measures them. Their records are kept as attempts.
    """
    from accelsweep.cli.runs import retry_runs

    retry_runs(Path.cwd(), name, outcome)


@command(
    "Read results",
    {
        "accelsweep status": "every sweep in this folder",
        "accelsweep status quickstart --json": "one sweep, for a script",
    },
)
def status(name: AnySweep = None, as_json: AsJson = False) -> None:
    """Show each sweep's result, progress and report.

    On a cluster, it also shows the jobs in the queue.
    """
    from accelsweep.cli.status import print_status

    raise typer.Exit(print_status(Path.cwd(), name, as_json=as_json))


@command(
    "Read results",
    {
        "accelsweep runs quickstart --sort rate": "the fastest runs first",
        "accelsweep runs quickstart --outcome crashed": "only the runs that crashed, with their reasons",
    },
)
def runs(name: SweepName, outcome: ListedOutcome = None, sort: Sort = "plan", as_json: AsJson = False) -> None:
    """List a sweep's runs: outcome, rate, doubts and reasons."""
    from accelsweep.cli.runs import print_runs

    print_runs(Path.cwd(), name, outcome, sort=sort, as_json=as_json)


@command(
    "Read results",
    {
        "accelsweep report quickstart --summary": "one sweep, and a card of its result for a slide or an issue",
        "accelsweep report mine-a100 mine-h100": "two sweeps in one report, reports/mine-a100+mine-h100",
    },
)
def report(names: Sweeps, *, summary: Summary = False) -> None:
    """Write a sweep's report again, or one report of several sweeps."""
    from accelsweep.driver.finalize import report_sweeps

    report_sweeps(Path.cwd(), names, summary=summary)


@command(
    "Read results",
    {
        "accelsweep compare before after": "what changed from one sweep to the other",
        "accelsweep compare before after --fail-if slower:2%": "exit code 3 for a regression, for a CI gate",
    },
)
def compare(before: Before, after: After, fail_if: FailIf = None, as_json: AsJson = False) -> None:
    """Compare two sweeps setting by setting, with intervals and verdicts."""
    from accelsweep.cli.sweeps import compare_sweeps

    raise typer.Exit(compare_sweeps(Path.cwd(), before, after, fail_if, as_json=as_json))


@command(
    "Manage",
    {
        "accelsweep publish quickstart": "into mlflow.db in this folder",
        "accelsweep publish quickstart --tracking-uri http://localhost:5000": "to a server",
    },
)
def publish(
    name: SweepName,
    tracking_uri: TrackingUri = None,
    anew: Annotated[
        bool, typer.Option("--anew", help="set the old copy aside first, and publish all records again")
    ] = False,
) -> None:
    """Copy a sweep's results to MLflow. Only missing and changed runs are sent."""
    from accelsweep.cli.sweeps import publish_now
    from accelsweep.driver.background_processes import how_to_open_mlflow
    from accelsweep.driver.console import say
    from accelsweep.records.layout import existing_sweep

    say(publish_now(Path.cwd(), name, tracking_uri, reset=anew))
    say(how_to_open_mlflow(existing_sweep(Path.cwd(), name), tracking_uri))


@command(
    "Read results",
    {
        "accelsweep ui": "the results in this folder",
        "accelsweep ui --port 5001 --no-open": "on this port, without opening a browser",
    },
)
def ui(
    port: Annotated[
        int | None, typer.Option(min=1, max=65535, help="port on 127.0.0.1 (default: 5000, or any free one)")
    ] = None,
    browser: Annotated[
        bool | None,
        typer.Option("--open/--no-open", help="open the latest sweep in the browser (default: only on a desktop)"),
    ] = None,
    tracking_uri: TrackingUri = None,
) -> None:
    """Open MLflow in the browser with this folder's results, until Ctrl-C."""
    from accelsweep.driver.console import say
    from accelsweep.tracking.ui import serve_ui

    raise typer.Exit(serve_ui(Path.cwd(), port=port, tracking_uri=tracking_uri, browser=browser, echo=say))


@command(
    "Find causes",
    {
        "accelsweep doctor": "this machine, and the project in this folder",
        "accelsweep doctor site=mine --job 10": "a cluster: also run a short job on each kind of node",
    },
)
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
    """Check that this machine or cluster is ready to measure.

    It lists devices, versions, and what would disturb a measurement.
    """
    from accelsweep.cli.doctor import examine

    raise typer.Exit(examine(Path.cwd(), overrides or (), entry=entry, job_minutes=job, as_json=as_json))


@command(
    "Manage",
    {
        "accelsweep site mine --from-slurm": "from what sinfo lists on this login node",
        "accelsweep doctor site=mine": "then check the file that it wrote",
    },
)
@with_sources
def site(name: Annotated[str, typer.Argument(help="the site's name: conf/site/NAME.yaml")], **sources: bool) -> None:
    """Draft a cluster's site file from what its scheduler reports.

    It writes conf/site/NAME.yaml, with comments on what to add by hand.
    """
    from accelsweep.cli.sweeps import write_draft

    write_draft(Path.cwd(), name, [scheduler for scheduler, is_asked in sources.items() if is_asked])


@command(
    "Manage",
    {
        "accelsweep clean quickstart": "ask first",
        "accelsweep clean quickstart --yes": "do not ask",
    },
)
def clean(
    name: SweepName,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="do not ask for confirmation")] = False,
) -> None:
    """Delete a sweep and its report. MLflow keeps its copy."""
    from accelsweep.cli.sweeps import delete_sweep

    delete_sweep(Path.cwd(), name, ask=None if yes else typer.confirm)
