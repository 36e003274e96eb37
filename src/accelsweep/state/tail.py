"""The end of a log, which may be long, may still grow, and may hold bytes that are no text."""

from __future__ import annotations

import os
from pathlib import Path
from typing import IO

from accelsweep.base.documents import open_regular
from accelsweep.base.errors import DamagedFile
from accelsweep.base.secrets import masked


def last_lines(log: Path | IO[bytes], count: int | None = None, most_bytes: int = 16_384) -> list[str]:
    """Return the last `count` lines of a log (all for None) within its last `most_bytes`, secrets masked.

    Empty where the file cannot be read. The first line may be cut. Bytes that are no UTF-8 are replaced.
    """
    try:
        text = end_of(log, most_bytes)
    except (OSError, DamagedFile):
        return []
    lines = masked(text.decode("utf-8", "replace")).splitlines()
    return lines if count is None else lines[-count:]


def end_of(log: Path | IO[bytes], most_bytes: int) -> bytes:
    """Return the last `most_bytes` of a log. Raises OSError or DamagedFile where it cannot be read."""
    if isinstance(log, Path):
        with open_regular(log) as file:
            return end_of(file, most_bytes)
    log.seek(max(0, log.seek(0, os.SEEK_END) - most_bytes))
    return log.read()
