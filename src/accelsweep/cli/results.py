"""Commands that show what was measured."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from accelsweep.cli.app import app
from accelsweep.commands.line.arguments import (
    After,
    AnySweep,
    AsJson,
    Before,
    FailIf,
    HistorySources,
    ListedOutcome,
    Sort,
    SweepName,
    Sweeps,
    TrackingUri,
)


@app.command()
def status(
    name: AnySweep = None,
    as_json: AsJson = False,
) -> None:
    """Show planned, running and finished runs, results and reports; on a cluster, the jobs in its queue too."""
    from accelsweep.commands.status import print_status

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
    from accelsweep.commands.runs import print_runs

    print_runs(Path.cwd(), name, outcome, sort=sort, as_json=as_json)


@app.command()
def report(names: Sweeps) -> None:
    """Write the report again from the records. Several sweeps get one report, reports/A+B."""
    from accelsweep.drive import finish
    from accelsweep.drive.terminal.console import say

    say(finish.report(Path.cwd(), names))


@app.command()
def compare(
    before: Before,
    after: After,
    fail_if: FailIf = None,
    as_json: AsJson = False,
) -> None:
    """Compare two sweeps setting by setting, with intervals and verdicts."""
    from accelsweep.commands.compare import compare_sweeps

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
    from accelsweep.commands.exchange.publishing import publish_now
    from accelsweep.drive.terminal.console import say

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
    from accelsweep.drive.terminal.console import say
    from accelsweep.publish.browse.ui import serve_ui

    raise typer.Exit(serve_ui(Path.cwd(), port=port, tracking_uri=tracking_uri, browser=browser, tell=say))
