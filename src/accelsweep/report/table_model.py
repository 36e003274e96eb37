"""A report's tables as data, independent of HTML and Markdown, and the CSV writer."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

MAX_ROWS = 200
"""Maximum number of rows included in the page's HTML and in Markdown; the page's filter and sort apply to all rows."""


@dataclass(frozen=True)
class Column:
    """A column's heading; numeric columns are right-aligned with tabular figures."""

    title: str
    numeric: bool = False


@dataclass(frozen=True)
class Entry:
    """One cell of a table: its text, a smaller second line, a `tone` (verdict or outcome), and a sort key."""

    text: str
    detail: str = ""
    tone: str = ""
    order: float | None = None
    code: bool = False


@dataclass(frozen=True)
class Detail:
    """A line shown when a row is expanded. `code` marks a command to type; `href` is a path relative to the page."""

    name: str
    text: str
    code: bool = False
    href: str = ""


@dataclass(frozen=True)
class ReportTable:
    """A table with its caption; `data` contains the raw rows of `NAME.csv`, `empty` is the sentence for an empty table.

    `details` contains the lines shown when each row is expanded; it is empty if rows cannot be expanded. `summary`
    contains sentences on what the rows have in common. If `folded` is set, it is the text to click on for the table,
    which the page shows on demand only.
    """

    name: str
    title: str
    caption: str
    columns: tuple[Column, ...]
    rows: tuple[tuple[Entry, ...], ...]
    data: Sequence[Mapping[str, Any]]
    empty: str
    details: tuple[tuple[Detail, ...], ...] = ()
    summary: tuple[str, ...] = ()
    folded: str = ""

    @property
    def visible_rows(self) -> tuple[tuple[Entry, ...], ...]:
        """The rows included in the page's HTML and in Markdown."""
        return self.rows[:MAX_ROWS]

    @property
    def hidden_rows(self) -> tuple[tuple[Entry, ...], ...]:
        """The rows that the page includes only as data."""
        return self.rows[MAX_ROWS:]

    @property
    def extent(self) -> str:
        """A sentence with the number of visible rows; empty if all rows are visible."""
        return f"The first {MAX_ROWS} of {len(self.rows):,} rows; the CSV contains all." if self.hidden_rows else ""


def to_csv(rows: Iterable[Mapping[str, Any]], columns: Sequence[str] | None = None) -> str:
    r"""Return `rows` as CSV with `\n` line endings. By default, every key is a column, in order of first appearance.

    None becomes an empty field. Text that a spreadsheet would run as a formula is prefixed with an apostrophe.
    """
    rows = list(rows)
    names = list(columns) if columns is not None else list(dict.fromkeys(key for row in rows for key in row))
    buffer = io.StringIO()
    writer = csv.writer(buffer, lineterminator="\n")
    writer.writerow([_csv_value(name) for name in names])
    writer.writerows(
        [value if type(value) in _PLAIN else _csv_value(value) for value in map(row.get, names)] for row in rows
    )
    return buffer.getvalue()


_PLAIN = frozenset({float, int, type(None)})
"""The types, most of a report's values, that `csv` writes as they should be."""


def _csv_value(value: Any) -> Any:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return f"'{value}" if value.startswith(("=", "+", "-", "@", "\t", "\r")) else value
    if isinstance(value, Mapping | list | tuple):
        return str(value)
    return value
