"""The command line itself, without its commands."""

from __future__ import annotations

from typing import Annotated

import typer

from accelsweep.base.version import __version__
from accelsweep.commands.line.command_line import Commands

app = typer.Typer(
    name="accelsweep",
    cls=Commands,
    help="Does a GPU, a bigger batch or a lower precision pay off for your model? One command measures and tells.",
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"accelsweep {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[  # noqa: ARG001 - its callback answers
        bool, typer.Option("--version", callback=_version, is_eager=True, help="print the version")
    ] = False,
) -> None:
    from accelsweep.state.leftovers import sweep_up_temporary

    sweep_up_temporary()
