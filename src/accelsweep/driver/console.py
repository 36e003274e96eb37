"""Terminal output of all commands: lines and tables. Labels and reasons are plain text, never markup or escape codes.

A table that does not fit the terminal is printed as stacked rows, so nothing is ever truncated. Colour only reinforces
the words; it is disabled if NO_COLOR is set.
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum

import typer
from rich import box
from rich.cells import cell_len
from rich.console import Console, JustifyMethod
from rich.measure import Measurement
from rich.table import Table
from rich.text import Text

from accelsweep.records.estimates import Verdict
from accelsweep.significant_digits import escaped


class Tone(Enum):
    """A verdict's colour (a rich colour name, or empty) and symbol."""

    plain = ("", "")
    good = ("green", "▲")
    bad = ("red", "▼")
    level = ("cyan", "=")
    doubtful = ("yellow", "?")

    @property
    def colour(self) -> str:
        """The rich colour name; empty for the default colour."""
        return self.value[0]

    @property
    def symbol(self) -> str:
        """The symbol to print before the text; may be empty."""
        return self.value[1]


_VERDICT_TONES = {
    Verdict.faster: Tone.good,
    Verdict.slower: Tone.bad,
    Verdict.larger: Tone.good,
    Verdict.smaller: Tone.bad,
    Verdict.same: Tone.level,
    Verdict.baseline: Tone.plain,
    Verdict.not_measured: Tone.plain,
}


def tone_of(verdict: Verdict) -> Tone:
    """Return the tone of a verdict; verdicts without an explicit tone are doubtful."""
    return _VERDICT_TONES.get(verdict, Tone.doubtful)


_FILE_WIDTH = 140

WIDE = 100
"""The minimum width at which names in a table may wrap; on narrower terminals, a table that does not fit is stacked."""

_NARROW = 60
"""Below this width, tables are always stacked, because a title wider than its table would wrap at the table's width."""

_MIN_NAME_WIDTH = 12


@dataclass(frozen=True)
class Styled:
    """Text with a tone."""

    text: str
    tone: Tone


@dataclass(frozen=True)
class Listing:
    """A table. Each row contains one cell per heading; the first cell is the row's name.

    `numbers` lists the headings of the numeric columns, which are right-aligned. `dense` tables have no lines between
    columns, for many rows; where they do not fit, names are wrapped before rows are stacked.
    """

    title: str
    headings: tuple[str, ...]
    rows: tuple[tuple[str | Styled, ...], ...]
    numbers: tuple[str, ...] = ()
    dense: bool = False


class Terminal(Console):
    """A rich console that does not exit silently on a broken pipe."""

    def on_broken_pipe(self) -> None:
        """Re-raise the current BrokenPipeError, so that commands that measure can report it."""
        self.quiet = True
        raise  # noqa: PLE0704 - rich calls it while it handles the error


def console(*, err: bool = False) -> Console:
    """Return a console, 140 characters wide if there is no terminal and COLUMNS is not set."""
    terminal = Terminal(highlight=False, stderr=err)
    if not terminal.is_terminal and "COLUMNS" not in os.environ:
        return Terminal(highlight=False, stderr=err, width=_FILE_WIDTH)
    return terminal


def say(line: object, *, err: bool = False, nl: bool = True) -> None:
    """Print a line with control characters escaped: to stderr if `err` is set, without a newline if `nl` is False."""
    typer.echo(escaped(str(line)), err=err, nl=nl)


def warn(line: str) -> None:
    """Print a line to stderr, with control characters escaped."""
    say(line, err=True)


def say_bold(line: str) -> None:
    """Print a line in bold."""
    console().print(Text(escaped(line), "bold"), soft_wrap=True)


def say_styled(prefix: str, tone: Tone, line: str) -> None:
    """Print a line that starts with `prefix` in the colour of `tone`."""
    console().print(Text.assemble((escaped(prefix), tone.colour), escaped(line)), soft_wrap=True)


def drop_output() -> None:
    """Redirect stdout to /dev/null, so that Python does not report a broken pipe at exit."""
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, 1)
    os.close(null)


def show(listing: Listing) -> None:
    """Print a table, stacking its rows if the terminal is too narrow."""
    terminal = console()
    table = _table(listing, terminal)
    width = Measurement.get(terminal, terminal.options.update_width(10_000), table).maximum
    wraps = listing.dense or terminal.width >= WIDE
    fits = width <= terminal.width or (wraps and _min_width(listing, terminal) <= terminal.width)
    fits = fits and terminal.width >= _NARROW
    if listing.dense or not fits:
        _print_wrapped(terminal, plain(listing.title))  # rich would make the title of a table as narrow as its columns
    if fits:
        terminal.print(table)
        return
    for row in listing.rows:
        _print_stacked(terminal, listing.headings, row)


def plain(text: str) -> Text:
    """Return text without markup, with control characters escaped."""
    return Text(escaped(text))


def _table(listing: Listing, terminal: Console) -> Table:
    table = Table(title=None if listing.dense else plain(listing.title), title_justify="left")
    if listing.dense:
        table.box, table.show_edge, table.pad_edge, table.padding = box.SIMPLE_HEAD, False, False, (0, 1, 0, 0)
    for number, heading in enumerate(listing.headings):
        justify: JustifyMethod = "right" if heading in listing.numbers else "left"
        width = _min_column_width(listing, number, terminal)
        table.add_column(plain(heading), justify=justify, min_width=width, overflow="fold")
    for row in listing.rows:
        table.add_row(*(_text(item, terminal) for item in row))
    return table


def _min_column_width(listing: Listing, number: int, terminal: Console) -> int:
    """Return the width of a column's longest word, capped at `_MIN_NAME_WIDTH` for the name column."""
    texts = [listing.headings[number], *(_text(row[number], terminal).plain for row in listing.rows)]
    longest = max(map(len, " ".join(texts).split()), default=0)
    return min(longest, _MIN_NAME_WIDTH) if number == 0 else longest


def _min_width(listing: Listing, terminal: Console) -> int:
    """Return the smallest width, including borders, at which no word in the table has to be broken."""
    around, between = (-2, 2) if listing.dense else (1, 3)
    return around + sum(
        between + _min_column_width(listing, number, terminal) for number in range(len(listing.headings))
    )


def _print_stacked(terminal: Console, headings: Sequence[str], row: Sequence[str | Styled]) -> None:
    """Print a row as its name followed by one line per heading, indenting wrapped lines."""
    _print_wrapped(terminal, _text(row[0], terminal))
    indent = max(map(len, headings[1:]), default=0)
    for heading, item in zip(headings[1:], row[1:], strict=True):
        if not (item.text if isinstance(item, Styled) else item):
            continue
        prefix, text = escaped(f"  {heading:<{indent}}  " if heading else "  "), _text(item, terminal)
        if len(prefix) + max(map(len, text.plain.split()), default=0) > terminal.width:  # else words would break
            _print_wrapped(terminal, plain(heading), "  ")
            prefix = " " * 4
        _print_wrapped(terminal, text, prefix)


def _print_wrapped(terminal: Console, text: Text, prefix: str = "") -> None:
    """Print text after `prefix`, aligning wrapped lines with its start. Words that do not fit are not broken."""
    breaks, start = [], 0
    for word in re.finditer(r"\S+", text.plain):
        if word.start() > start and cell_len(text.plain[start : word.end()]) > terminal.width - len(prefix):
            start = word.start()
            breaks.append(start)
    for line in text.divide(breaks):
        line.rstrip()
        terminal.print(Text(prefix).append(line), soft_wrap=True)
        prefix = " " * len(prefix)


def _text(item: str | Styled, terminal: Console) -> Text:
    """Return text in its colour, with its symbol if the terminal can display it."""
    if not isinstance(item, Styled):
        return plain(item)
    symbols = terminal.is_terminal and terminal.encoding.startswith("utf") and item.tone.symbol
    return Text(f"{item.tone.symbol} " if symbols else "", item.tone.colour).append(plain(item.text))
