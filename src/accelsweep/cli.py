"""The command line: thin commands, each of which imports what it needs when it is called, so that `--help` is quick."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Annotated

import typer

from accelsweep.base.errors import EXIT_INTERRUPTED, AccelsweepError, InputError, words_of
from accelsweep.base.interrupts import end_as_by_ctrl_c
from accelsweep.base.version import __version__
from accelsweep.commands.line.arguments import (
    AddRepeats,
    After,
    AnySweep,
    AsJson,
    Before,
    CancelOld,
    Cfg,
    Claims,
    FailIf,
    Jobs,
    ListedOutcome,
    Name,
    Notify,
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
    TrackingUri,
    UntilDecided,
    Versions,
)
from accelsweep.commands.line.command_line import INTERRUPTED, Commands, OfHydra, fail

NOTIFY_VARIABLE = "ACCELSWEEP_NOTIFY"
"""The environment variable that holds an address for notices. No list of processes shows it, and no run inherits it."""


app = typer.Typer(
    name="accelsweep",
    cls=Commands,
    help="Does a GPU, a bigger batch or a lower precision pay off for your model? One command measures and tells.",
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)


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
    dry_run: Annotated[bool, typer.Option("--dry-run", "-n", help="show the plan and write nothing")] = False,
    add_repeats: AddRepeats = 0,
    time_budget: TimeBudget = None,
    until_decided: UntilDecided = False,
    tracking_uri: TrackingUri = None,
    cancel_old: CancelOld = False,
    notify: Notify = None,
    cfg: Cfg = None,
) -> None:
    """Plan a sweep, measure its missing runs, and write its report. The same command again resumes it."""
    from accelsweep.commands import plan as planning
    from accelsweep.commands import run as running

    if cfg is not None:
        planning.print_config(Path.cwd(), overrides or [], cfg)
        return
    request = running.Request(
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
    raise typer.Exit(running.run(Path.cwd(), request))


@app.command(cls=OfHydra)
def ab(
    words: Versions = None,
    python: Pythons = None,
    name: Name = None,
    profile: Profile = "local",
    jobs: Jobs = None,
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
    from accelsweep.commands.ab import compare_versions, words_apart
    from accelsweep.commands.run import Request

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
    raise typer.Exit(compare_versions(Path.cwd(), request, fail_if, as_json=as_json, form=form))


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
def status(
    name: AnySweep = None,
    as_json: AsJson = False,
) -> None:
    """Show planned, running and finished runs, results and reports; on a cluster, the jobs in Slurm's queue too."""
    from accelsweep.commands.status import print_status

    raise typer.Exit(print_status(Path.cwd(), name, as_json=as_json))


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
def retry(
    name: SweepName,
    outcome: RetriedOutcome,
) -> None:
    """Open runs again for the next `accelsweep run`. Their records are kept as attempts."""
    from accelsweep.commands.retry import retry_runs

    retry_runs(Path.cwd(), name, outcome)


@app.command()
def report(names: Sweeps) -> None:
    """Write the report again from the records. Several sweeps get one report, reports/A+B."""
    from accelsweep.drive import finish
    from accelsweep.drive.console import say

    say(finish.report(Path.cwd(), names))


@app.command()
def export(
    name: SweepName,
    to: Annotated[Path | None, typer.Option(help="the file to write (default: NAME.zip)", show_default=False)] = None,
) -> None:
    """Pack a sweep into one file: plan, records, findings, report, versions, checksums. Writes its report again."""
    from accelsweep.commands.archives import export_sweep

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
        from accelsweep.commands.external import import_rows

        import_rows(Path.cwd(), file, source, device, name)
        return
    if device is not None:
        raise InputError("--device is for published results: say with --from who published them")
    from accelsweep.commands.archives import import_archive

    import_archive(Path.cwd(), file, name)


@app.command()
def publish(name: SweepName, tracking_uri: TrackingUri = None) -> None:
    """Copy the sweep's records to MLflow. Only missing and changed runs are sent."""
    from accelsweep.commands.publishing import publish_now
    from accelsweep.drive.console import say

    say(publish_now(Path.cwd(), name, tracking_uri))


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
def claims(
    names: Claims = None,
    minutes: Annotated[float, typer.Option(min=0, help="start no run after this time")] = 30.0,
) -> None:
    """Put well-known claims about GPUs to the test on this machine, and write reports/claims."""
    from accelsweep.commands.claims import put_to_the_test

    raise typer.Exit(put_to_the_test(Path.cwd(), names or [], minutes))


@app.command()
def ui(
    port: Annotated[int | None, typer.Option(min=1, max=65535, help="port on 127.0.0.1 (default: a free one)")] = None,
    browser: Annotated[
        bool | None,
        typer.Option("--open/--no-open", help="open the latest sweep in the browser (default: on a desktop)"),
    ] = None,
    tracking_uri: TrackingUri = None,
) -> None:
    """Open MLflow's UI on this folder's results, on loopback, until Ctrl-C."""
    from accelsweep.drive.console import say
    from accelsweep.publish.ui import serve_ui

    raise typer.Exit(serve_ui(Path.cwd(), port=port, tracking_uri=tracking_uri, browser=browser, tell=say))


@app.command()
def doctor(as_json: AsJson = False) -> None:
    """Check whether this machine can measure, and list its devices and versions."""
    from accelsweep.commands.doctor import examine

    raise typer.Exit(examine(Path.cwd(), as_json=as_json))


@app.command()
def site(
    name: Annotated[str, typer.Argument(help="the site's name: conf/site/NAME.yaml")],
    from_slurm: Annotated[bool, typer.Option("--from-slurm", help="from what sinfo lists on this login node")] = False,
) -> None:
    """Draft a site file for this cluster into conf/site, with comments on what Slurm does not know."""
    from accelsweep.commands.site import write_draft

    write_draft(Path.cwd(), name, from_slurm=from_slurm)


@app.command()
def debug(name: SweepName, setting: Setting) -> None:
    """Run one setting in the foreground, in a throw-away folder; breakpoint() and pdb work. Records stay untouched."""
    from accelsweep.commands.debug import debug_in_foreground

    raise typer.Exit(debug_in_foreground(Path.cwd(), name, setting))


@app.command()
def clean(
    name: SweepName,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="do not ask")] = False,
) -> None:
    """Delete sweeps/NAME and reports/NAME, records included. MLflow keeps its copy."""
    from accelsweep.commands.clean import delete_sweep

    delete_sweep(Path.cwd(), name, ask=None if yes else typer.confirm)


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"accelsweep {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="print the version")
    ] = False,
) -> None:
    pass


def main() -> None:
    """Run the command line; turn our errors into one message and an exit code, and never show a traceback for them."""
    os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")
    end_as_by_ctrl_c()
    try:
        app()
    except AccelsweepError as error:
        kind = "wrong input" if isinstance(error, InputError) else "error"
        sys.exit(fail(f"accelsweep: {kind}: {error}", error.exit_code))
    except KeyboardInterrupt:
        sys.exit(fail(INTERRUPTED, EXIT_INTERRUPTED))
    except OSError as error:
        sys.exit(fail(f"accelsweep: error: {words_of(error)}", 1))
