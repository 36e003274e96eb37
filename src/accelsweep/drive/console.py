"""All that commands print: lines and tables, in which labels and reasons are text, neither markup nor commands.

Tables are as wide as the terminal, and wide enough to read where there is none.
"""

from __future__ import annotations

import os
from datetime import timedelta

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from accelsweep.base.terminal import escaped

_WIDTH_OF_A_FILE = 140


def console() -> Console:
    """Return a console; without a terminal (and without COLUMNS) lines may be 140 characters long."""
    shown = Console(highlight=False)
    if not shown.is_terminal and "COLUMNS" not in os.environ:
        return Console(highlight=False, width=_WIDTH_OF_A_FILE)
    return shown


def say(line: object, *, err: bool = False, nl: bool = True) -> None:
    """Print a line as it is, safely; on the standard error output with `err`, without an end with `nl=False`."""
    typer.echo(escaped(str(line)), err=err, nl=nl)


def plain(text: str) -> Text:
    """Return a cell, heading or title of a table, in which nothing is markup."""
    return Text(escaped(text))


def new_table(title: str) -> Table:
    """Return a table under `title`, without columns yet."""
    return Table(title=plain(title), title_justify="left")


def show(table: Table) -> None:
    """Print a table, all texts of which are `plain`."""
    console().print(table)


def duration(seconds: float) -> str:
    """Return so many seconds in words: `0:01:30`, `1 day, 2:00:00`."""
    return str(timedelta(seconds=round(seconds)))
