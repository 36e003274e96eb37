"""`accelsweep runs`: every run of a sweep with its outcome, reason, cell and folder, from files alone."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from accelsweep.base.errors import DamagedFile, InputError, nearest
from accelsweep.core.cell import label
from accelsweep.core.outcome import Outcome
from accelsweep.core.plans import Manifest, Run
from accelsweep.drive.console import say
from accelsweep.state.attempts import RunFolder
from accelsweep.state.folders import SweepFolder, existing_sweep
from accelsweep.state.halts import why_not_run


@dataclass(frozen=True)
class ListedRun:
    """One run, or one cell that the plan marks as unsupported (then `run` and `folder` are None).

    `disturbed` says how others used the machine while the run was measured.
    """

    run: str | None
    outcome: Outcome
    reason: str | None
    what: str
    folder: Path | None
    disturbed: str | None = None


def print_runs(home: Path, name: str, outcome: str | None) -> None:
    """Print a line for each run of the sweep, or for those with this outcome, with the reason below it."""
    wanted = None if outcome is None else outcome_named(outcome)
    rows = [row for row in rows_of(existing_sweep(home, name)) if wanted in (None, row.outcome)]
    for row in rows:
        where = f"  {row.folder.relative_to(home)}" if row.folder is not None else ""
        say(f"{row.outcome:<13}  {row.what}{where}")
        for line in (row.reason or "").splitlines():
            say(f"{'':<13}  {line}")
    if not rows:
        say(f"{name}: no run is {wanted}" if wanted else f"{name}: no runs")


def outcome_named(name: str) -> Outcome:
    """Return the outcome of this name; raise InputError that lists the known ones."""
    try:
        return Outcome(name)
    except ValueError:
        known = [str(outcome) for outcome in Outcome]
        raise InputError(f"no outcome {name!r}{nearest(name, known)}; there are: {', '.join(known)}") from None


def rows_of(folder: SweepFolder) -> Iterator[ListedRun]:
    """Yield a row for each wanted run in plan order, then one for each cell that the plan marks as unsupported."""
    manifest = Manifest.read(folder.manifest)
    labels = {cell.name: label(cell.axes) for cell in manifest.cells}
    for block in manifest.blocks:
        for run in block.runs:
            cell, repeat = Run.parse(run)
            outcome, reason, disturbed = _ending(folder, block.name, run)
            what = f"{labels.get(cell, cell)}, repeat {repeat}"
            yield ListedRun(run, outcome, reason, what, folder.run(run), disturbed)
    for planned in manifest.cells:
        if planned.unsupported is not None:
            yield ListedRun(None, Outcome.unsupported, planned.unsupported, labels[planned.name], None)


def _ending(folder: SweepFolder, block: str, run: str) -> tuple[Outcome, str | None, str | None]:
    try:
        record = RunFolder(folder.run(run), run).record()
    except DamagedFile as error:
        return Outcome.not_run, f"its record is damaged: {error.why}", None
    if record is None:
        return Outcome.not_run, f"{why_not_run(folder, block)}; the same `accelsweep run` measures it", None
    return record.outcome, record.reason, next((one.message for one in record.doubts if one.disturbing), None)
