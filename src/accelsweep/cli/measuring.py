"""Commands that measure, or say what would be measured."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from accelsweep.base.errors import InputError
from accelsweep.cli.app import app
from accelsweep.commands.line.arguments import (
    AddRepeats,
    AsJson,
    CancelOld,
    Cfg,
    Detach,
    DryRun,
    Jobs,
    KeepGoing,
    Name,
    Notify,
    OneOrTwoSettings,
    Overrides,
    Profile,
    ProfileToCheck,
    RetriedOutcome,
    Setting,
    SweepName,
    TimeBudget,
    TrackingUri,
    UntilDecided,
)
from accelsweep.commands.line.command_line import OfHydra

if TYPE_CHECKING:
    from accelsweep.commands.running.request import Request

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
    keep_going: KeepGoing = False,
    notify: Notify = None,
    detach: Detach = False,
    cfg: Cfg = None,
) -> None:
    """Plan a sweep, measure its missing runs, and write its report. The same command again resumes it."""
    from accelsweep.commands import plan as planning
    from accelsweep.commands.run import run as run_sweep
    from accelsweep.commands.running.request import Request

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
