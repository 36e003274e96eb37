"""The console that tables go to: as wide as the terminal, and wide enough to read where there is none."""

from __future__ import annotations

import os

from rich.console import Console

_WIDTH_OF_A_FILE = 140


def console() -> Console:
    """Return a console; without a terminal (and without COLUMNS) lines may be 140 characters long."""
    shown = Console(highlight=False)
    if not shown.is_terminal and "COLUMNS" not in os.environ:
        return Console(highlight=False, width=_WIDTH_OF_A_FILE)
    return shown
