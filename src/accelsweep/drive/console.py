"""The console that tables go to: as wide as the terminal, and wide enough to read where there is none; times on it."""

from __future__ import annotations

import os
from datetime import timedelta

from rich.console import Console

_WIDTH_OF_A_FILE = 140


def console() -> Console:
    """Return a console; without a terminal (and without COLUMNS) lines may be 140 characters long."""
    shown = Console(highlight=False)
    if not shown.is_terminal and "COLUMNS" not in os.environ:
        return Console(highlight=False, width=_WIDTH_OF_A_FILE)
    return shown


def duration(seconds: float) -> str:
    """Return so many seconds in words: `0:01:30`, `1 day, 2:00:00`."""
    return str(timedelta(seconds=round(seconds)))
