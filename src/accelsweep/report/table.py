"""What a table is: frozen values, so that what stands in it is decided apart from how the page or Markdown set it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any


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
class Table:
    """A table with its caption and, for the CSV `NAME.csv`, its raw rows; `empty` is what to say if it has none."""

    name: str
    title: str
    caption: str
    columns: tuple[Column, ...]
    rows: tuple[tuple[Entry, ...], ...]
    data: Sequence[Mapping[str, Any]]
    empty: str
