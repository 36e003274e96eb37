"""`accelsweep run`: a sweep measured to its report."""

from __future__ import annotations

from pathlib import Path

from accelsweep.commands.running.carried_out import carried_out
from accelsweep.commands.running.request import Request


def run(home: Path, request: Request) -> int:
    """Run the sweep to its report; return the exit code."""
    return carried_out(home, request).code
