"""`accelsweep runs`: every run of a sweep with outcome, reason, rate, doubts and folder, from files alone."""

from __future__ import annotations

from pathlib import Path

from accelsweep.answers.devices import devices_of
from accelsweep.answers.forms.listed import ListedRun
from accelsweep.answers.rows import SORTS, in_words, listed, outcome_named
from accelsweep.base.errors import InputError, nearest
from accelsweep.core.planned.plans import Manifest
from accelsweep.drive.terminal.console import say, say_parts
from accelsweep.report.format import number
from accelsweep.state.folders import existing_sweep

_INDENT = 15


def print_runs(home: Path, name: str, outcome: str | None, *, sort: str = "plan", as_json: bool = False) -> None:
    """Print a line for each run of the sweep, or for those with this outcome, with reason and doubts below it.

    `sort` is one of `SORTS`. Raises InputError for an unknown outcome or order.
    """
    wanted = None if outcome is None else outcome_named(outcome)
    if sort not in SORTS:
        raise InputError(f"--sort {sort!r} is not known{nearest(sort, SORTS)}; there are: {', '.join(SORTS)}")
    folder = existing_sweep(home, name)
    answer = listed(folder)
    rows = sorted((row for row in answer.runs if wanted in (None, row.outcome)), key=SORTS[sort])
    if as_json:
        say(answer.model_copy(update={"runs": tuple(rows)}).text())
        return
    if rows and (devices := devices_of(folder, Manifest.read(folder.manifest))):
        say(f"{name}:{devices}")
    for row in rows:
        _print(row, answer.rate_unit or "")
    if not rows:
        say(f"{name}: no run is {wanted}" if wanted else f"{name}: no runs")


def _print(row: ListedRun, unit: str) -> None:
    rate = number(row.rate, unit) if row.rate is not None else ""
    say_parts(f"{row.outcome:<13}  ", [in_words(row), rate, row.folder or ""])
    for line in (row.reason or "").splitlines():
        say(f"{'':<{_INDENT}}{line}")
    if row.doubts:
        say(f"{'':<{_INDENT}}doubts: {', '.join(doubt.code for doubt in row.doubts)}")
