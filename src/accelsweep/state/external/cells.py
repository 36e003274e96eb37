"""The common part of the readers: a file's text, its table, its numbers, and the board behind a device's name."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Collection
from pathlib import Path

from accelsweep.devices.datasheets import datasheet_of, datasheets
from accelsweep.errors import InputError
from accelsweep.files import read_regular

MOST_TABLE_BYTES = 32 * 2**20
"""No file of the known formats comes near this size."""


def text_of(path: Path) -> str:
    """Return the text of the file; raise InputError if it is no text in UTF-8, and as `read_regular` does."""
    try:
        return read_regular(path, MOST_TABLE_BYTES).decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise InputError(f"{path} is no text in UTF-8 ({error.reason} at byte {error.start})") from None


def table_of(path: Path, required: Collection[str]) -> list[dict[str, str]]:
    """Return the rows of a CSV file that has these columns. Raise InputError with the line where it breaks."""
    reader = csv.reader(io.StringIO(text_of(path)), strict=True)
    try:
        lines = list(reader)
    except csv.Error as error:
        raise InputError(f"{path}, line {reader.line_num}: it is no CSV ({error})") from None
    head = lines[0] if lines else []
    if missing := [name for name in required if name not in head]:
        raise InputError(
            f"{path} has no column {', '.join(map(repr, missing))}; it has: {', '.join(head) or 'nothing'}"
        )
    for number, line in enumerate(lines[1:], 2):
        if len(line) != len(head):
            raise InputError(f"{path}, line {number}: it has {len(line)} values for {len(head)} columns")
    return [dict(zip(head, line, strict=True)) for line in lines[1:]]


def number_of(text: str, where: str) -> float | None:
    """Return the number; None for an empty text or 0, with which these files say that nothing was measured."""
    if not text.strip():
        return None
    try:
        value = float(text)
    except ValueError:
        raise InputError(f"{where}: {text!r} is no number") from None
    if not math.isfinite(value) or value < 0:
        raise InputError(f"{where}: {text!r} is no rate")
    return value or None


def whole_of(text: str, where: str) -> int | None:
    """Return the whole number, which may be written as `256.0`; None for an empty text or 0."""
    value = number_of(text, where)
    if value is not None and value != int(value):
        raise InputError(f"{where}: {text!r} is no whole number")
    return None if value is None else int(value)


def board_of(device: str) -> str | None:
    """Return the key of the datasheet of the device that a source calls so, or None where that is not sure."""
    for name in (device, f"GeForce {device}"):
        if (sheet := datasheet_of(name)) is not None:
            return sheet.key
    key = device.lower().replace(" ", "")
    return next((known for known in (key, f"rtx{key}") if known in datasheets()), None)
