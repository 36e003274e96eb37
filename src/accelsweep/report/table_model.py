"""A table as frozen values: its content is decided apart from its rendering in the page or in Markdown."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

MOST_ROWS = 200
"""So many rows of a longer table are set in the page and in Markdown; the page's filter and sort reach all of them."""


@dataclass(frozen=True)
class Column:
    """A column's heading; numbers are set right and in figures of equal width."""

    title: str
    numeric: bool = False


@dataclass(frozen=True)
class Entry:
    """One table cell: its words, a smaller second line, a `tone` (a verdict's or an outcome's name), a sort key."""

    text: str
    detail: str = ""
    tone: str = ""
    order: float | None = None
    code: bool = False


@dataclass(frozen=True)
class More:
    """One line of what a row opens to: its name and its words, which are set as they are typed if `code`.

    `href` is a path from the page to a file that the words name, empty for none.
    """

    name: str
    text: str
    code: bool = False
    href: str = ""


@dataclass(frozen=True)
class ReportTable:
    """A table with its caption and, for the CSV `NAME.csv`, its raw rows; `empty` are its words if it has none.

    `more` has, for each row, the lines that the row opens to; it is empty if the rows do not open.
    """

    name: str
    title: str
    caption: str
    columns: tuple[Column, ...]
    rows: tuple[tuple[Entry, ...], ...]
    data: Sequence[Mapping[str, Any]]
    empty: str
    more: tuple[tuple[More, ...], ...] = ()

    @property
    def shown(self) -> tuple[tuple[Entry, ...], ...]:
        """The rows that are set in the page and in Markdown."""
        return self.rows[:MOST_ROWS]

    @property
    def opened(self) -> tuple[tuple[More, ...], ...]:
        """The opened part of each row that is set."""
        return self.more[:MOST_ROWS]

    @property
    def beyond(self) -> tuple[tuple[Entry, ...], ...]:
        """The rows that are not."""
        return self.rows[MOST_ROWS:]

    @property
    def extent(self) -> str:
        """The sentence that tells how many rows are set of how many; empty where they are all."""
        return f"The first {MOST_ROWS} of {len(self.rows):,} rows; the CSV has them all." if self.beyond else ""


# Rows of findings as CSV: the same numbers, unformatted, one header line, Unix line ends, UTF-8.

_FORMULA = ("=", "+", "-", "@", "\t", "\r")


def to_csv(rows: Iterable[Mapping[str, Any]], columns: Sequence[str] | None = None) -> str:
    """Return `rows` as CSV. Without `columns`, every key that occurs makes one, in order of first appearance.

    None is an empty field. A text that a spreadsheet would run as a formula gets a leading apostrophe.
    """
    kept = list(rows)
    names = list(columns) if columns is not None else list(dict.fromkeys(key for row in kept for key in row))
    buffer = io.StringIO()
    writer = csv.writer(buffer, lineterminator="\n")
    writer.writerow([_plain(name) for name in names])
    writer.writerows([_plain(row.get(name)) for name in names] for row in kept)
    return buffer.getvalue()


def _plain(value: Any) -> Any:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str) and value.startswith(_FORMULA):
        return f"'{value}"
    if isinstance(value, Mapping | list | tuple):
        return str(value)
    return "" if value is None else value
