"""All that commands print: lines and tables, in which labels and reasons are text, neither markup nor commands.

Tables are as wide as the terminal, and wide enough to read where there is none. Where a terminal is too narrow for a
table, its rows are stacked. So nothing is ever cut. Colour stands beside words only, and not where NO_COLOR is set.
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum

import typer
from rich.cells import cell_len
from rich.console import Console, JustifyMethod
from rich.measure import Measurement
from rich.table import Table
from rich.text import Text

from accelsweep.records.estimates import Verdict
from accelsweep.significant_digits import escaped

# The looks of verdicts: a colour and a symbol beside the word, for terminals that have them.


class Tone(Enum):
    """A colour, by rich's name, and a symbol."""

    plain = ("", "")
    good = ("green", "▲")
    bad = ("red", "▼")
    level = ("cyan", "=")
    doubtful = ("yellow", "?")

    @property
    def colour(self) -> str:
        """The name that rich has for the colour; empty for plain words."""
        return self.value[0]

    @property
    def symbol(self) -> str:
        """The symbol; empty for plain words."""
        return self.value[1]


_OF_VERDICTS = {
    Verdict.faster: Tone.good,
    Verdict.slower: Tone.bad,
    Verdict.larger: Tone.good,
    Verdict.smaller: Tone.bad,
    Verdict.same: Tone.level,
    Verdict.baseline: Tone.plain,
    Verdict.not_measured: Tone.plain,
}


def tone_of(verdict: Verdict) -> Tone:
    """Return the tone of a verdict on a rate. One that is open looks doubtful."""
    return _OF_VERDICTS.get(verdict, Tone.doubtful)


_WIDTH_OF_A_FILE = 140

WIDE = 100
"""From this width on, a table's names may take several lines; below, a table that does not fit is stacked."""

_NARROW = 60
"""Below this width, tables are stacked always: their title would be broken where it is longer than they are wide."""

_SHORTEST_NAME = 12
"""The characters that a name has in a line of a table, however narrow it is."""


@dataclass(frozen=True)
class Marked:
    """A text with the tone of what it says."""

    text: str
    tone: Tone


@dataclass(frozen=True)
class Listing:
    """A table as a value: a row has one text for each heading, and the first names it.

    `numbers` are the headings of right-aligned columns.
    """

    title: str
    headings: tuple[str, ...]
    rows: tuple[tuple[str | Marked, ...], ...]
    numbers: tuple[str, ...] = ()


class Terminal(Console):
    """A console of rich's that does not end the process in silence where nobody reads its output any more."""

    def on_broken_pipe(self) -> None:
        """Raise the BrokenPipeError, which is being handled: a command that measures has something to say."""
        self.quiet = True
        raise  # noqa: PLE0704 - rich calls it while it handles the error


def console(*, err: bool = False) -> Console:
    """Return a console; without a terminal (and without COLUMNS) lines may be 140 characters long."""
    shown = Terminal(highlight=False, stderr=err)
    if not shown.is_terminal and "COLUMNS" not in os.environ:
        return Terminal(highlight=False, stderr=err, width=_WIDTH_OF_A_FILE)
    return shown


def say(line: object, *, err: bool = False, nl: bool = True) -> None:
    """Print a line as it is, safely; on the standard error output with `err`, without an end with `nl=False`."""
    typer.echo(escaped(str(line)), err=err, nl=nl)


def drop_output() -> None:
    """Send the standard output nowhere from now on: Python would complain at its end that nobody reads it."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 1)
    os.close(nowhere)


def warn(line: str) -> None:
    """Print a line as it is, safely, on the standard error output."""
    say(line, err=True)


def say_marked(mark: str, tone: Tone, line: str) -> None:
    """Print a line that begins with `mark` in the colour of `tone`."""
    console().print(Text.assemble((escaped(mark), tone.colour), escaped(line)), soft_wrap=True)


def say_parts(head: str, parts: Sequence[str]) -> None:
    """Print `head` and the parts that are not empty on a line; each part on its own line where a terminal is narrow.

    A file gets one line always, for those who search in it.
    """
    told, shown = [part for part in parts if part], console()
    line = head + "  ".join(told)
    if shown.is_terminal and len(line) > shown.width:
        line = head + ("\n" + " " * len(head)).join(told)
    say(line)


def show(listing: Listing) -> None:
    """Print a table, or its rows one below the other where the terminal is too narrow for it."""
    shown = console()
    table = _table(listing, shown)
    size = Measurement.get(shown, shown.options.update_width(10_000), table)
    fits = size.maximum <= shown.width or (shown.width >= WIDE and _least_width(listing, shown) <= shown.width)
    if fits and shown.width >= _NARROW:
        shown.print(table)
        return
    _print_unbroken(shown, plain(listing.title))
    for row in listing.rows:
        _print_stacked(shown, listing.headings, row)


def plain(text: str) -> Text:
    """Return a text in which nothing is markup."""
    return Text(escaped(text))


def _table(listing: Listing, shown: Console) -> Table:
    table = Table(title=plain(listing.title), title_justify="left")
    for number, heading in enumerate(listing.headings):
        justify: JustifyMethod = "right" if heading in listing.numbers else "left"
        table.add_column(plain(heading), justify=justify, min_width=_least(listing, number, shown), overflow="fold")
    for row in listing.rows:
        table.add_row(*(_text(item, shown) for item in row))
    return table


def _least(listing: Listing, number: int, shown: Console) -> int:
    """Return the room that a column needs: its longest word, or the beginning of a name."""
    heading = listing.headings[number]
    texts = [heading, *(_text(row[number], shown).plain for row in listing.rows)]
    longest = max(map(len, " ".join(texts).split()), default=0)
    return min(longest, _SHORTEST_NAME) if number == 0 else longest


def _least_width(listing: Listing, shown: Console) -> int:
    """Return the width of the narrowest table that cuts nothing, with its borders."""
    return 1 + sum(3 + _least(listing, number, shown) for number in range(len(listing.headings)))


def _print_stacked(shown: Console, headings: Sequence[str], row: Sequence[str | Marked]) -> None:
    """Print a row as its name, and a line for each heading below it; long texts go on under their beginning."""
    _print_unbroken(shown, _text(row[0], shown))
    room = max(map(len, headings[1:]), default=0)
    for heading, item in zip(headings[1:], row[1:], strict=True):
        if not _bare(item):
            continue
        head, text = escaped(f"  {heading:<{room}}  " if heading else "  "), _text(item, shown)
        if len(head) + max(map(len, text.plain.split()), default=0) > shown.width:  # a word would be broken in two
            _print_unbroken(shown, plain(heading), "  ")
            head = " " * 4
        _print_unbroken(shown, text, head)


def _print_unbroken(shown: Console, text: Text, head: str = "") -> None:
    """Print a text behind `head`, and its further lines below its beginning. A word that has no room is not broken."""
    breaks, start = [], 0
    for word in re.finditer(r"\S+", text.plain):
        if word.start() > start and cell_len(text.plain[start : word.end()]) > shown.width - len(head):
            start = word.start()
            breaks.append(start)
    for line in text.divide(breaks):
        line.rstrip()
        shown.print(Text(head).append(line), soft_wrap=True)
        head = " " * len(head)


def _bare(item: str | Marked) -> str:
    return item.text if isinstance(item, Marked) else item


def _text(item: str | Marked, shown: Console) -> Text:
    """Return a text with its colour, and with its symbol where a terminal can show that."""
    if not isinstance(item, Marked):
        return plain(item)
    symbols = shown.is_terminal and shown.encoding.startswith("utf") and item.tone.symbol
    return Text(f"{item.tone.symbol} " if symbols else "", item.tone.colour).append(plain(item.text))
