"""Options that features can extend: those shared by the commands that measure, and those that draft a site file."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from accelsweep import registry
from accelsweep.cli.options import PROFILES, AddRepeats, Entry, Minutes, Name, TrackingUri
from accelsweep.driver.request import Request

_OPTIONS: Mapping[str, Any] = {
    "entry": Entry,
    "minutes": Minutes,
    "name": Name,
    "profile": Annotated[
        str,
        typer.Option(help="a Snakemake profile in workflows/profiles/, or a path to one", autocompletion=PROFILES),
    ],
    "jobs": Annotated[int | None, typer.Option("--jobs", "-j", min=1, help="number of concurrent Snakemake jobs")],
    "add_repeats": AddRepeats,
    "time_budget": Annotated[str | None, typer.Option(help="start no new runs after this long: 90s, 30m, 2h")],
    "until_decided": Annotated[
        bool,
        typer.Option("--until-decided", help="analyse after 3, 5, 8, 12 and 20 blocks; repeat only undecided settings"),
    ],
    "tracking_uri": TrackingUri,
    "cancel_old": Annotated[
        bool,
        typer.Option("--cancel-old", help="end processes and jobs of an earlier command instead of waiting for them"),
    ],
    "keep_going": Annotated[
        bool, typer.Option("--keep-going", help="continue even if the first two settings end with the same exception")
    ],
}
"""Field of `Request` -> its option."""


def measures(
    *, without: tuple[str, ...] = (), only: tuple[str, ...] | None = None, **defaults: Any
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Add the options shared by measuring commands to a command, whose first argument receives them as a `Request`.

    `without` lists options to remove and `only` lists options to keep: fields of `Request` and features' options.
    `defaults` override the defaults of `Request`.
    """

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        declared = list(inspect.signature(command, eval_str=True).parameters.values())[1:]
        offered = {*_OPTIONS, *(option.name for option in registry.run_options())}
        offered = offered - {*without} if only is None else offered & {*only}
        core = {name: option for name, option in _OPTIONS.items() if name in offered}
        added = {option.name: option.target for option in registry.run_options() if option.name in offered}

        @functools.wraps(command)
        def with_request(**given: Any) -> None:
            features = {name: given.pop(name) for name in added}
            request = Request(**{name: given.pop(name) for name in core}, features=features)
            command(request, **given)

        options = {name: (option, defaults.get(name, getattr(Request, name))) for name, option in core.items()}
        options |= {name: (registry.load(target), None) for name, target in added.items()}
        parameters = [parameter.replace(kind=parameter.KEYWORD_ONLY) for parameter in declared]
        parameters += [
            inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, annotation=option, default=default)
            for name, (option, default) in options.items()
        ]
        with_request.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined] # what Typer reads
        with_request.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
        return with_request

    return decorate


def run_elsewhere(request: Request, answers_here: Mapping[str, bool]) -> None:
    """Exit if a feature runs the command elsewhere.

    `answers_here` maps each option that prints to this terminal to whether it is given.

    Raises InputError if a command that runs elsewhere is given any of them.
    """
    given = [option for option, is_given in answers_here.items() if is_given]
    for run in registry.loaded("run_elsewhere"):
        if (code := run(Path.cwd(), request, given)) is not None:
            raise typer.Exit(code)


def with_sources(command: Callable[..., None]) -> Callable[..., None]:
    """Add `--from-SCHEDULER` options, passed as `**sources`, for each scheduler that can draft a site file."""
    sources = {"slurm": "sinfo lists"} | {each.name: f"{each.draft_source} list" for each in registry.schedulers()}
    declared = list(inspect.signature(command, eval_str=True).parameters.values())[:-1]
    options = [
        inspect.Parameter(
            name,
            inspect.Parameter.KEYWORD_ONLY,
            annotation=Annotated[
                bool,
                typer.Option(f"--from-{name.replace('_', '-')}", help=f"draft from what {source} on this login node"),
            ],
            default=False,
        )
        for name, source in sources.items()
    ]

    @functools.wraps(command)
    def with_options(**given: Any) -> None:
        command(**given)

    with_options.__signature__ = inspect.Signature([*declared, *options])  # type: ignore[attr-defined] # what Typer reads
    with_options.__annotations__ = {parameter.name: parameter.annotation for parameter in (*declared, *options)}
    return with_options
