"""Rows of findings as CSV: the same numbers, unformatted, one header line, Unix line ends, UTF-8."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

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
