"""`accelsweep debug`: one cell of a sweep in the foreground."""

from __future__ import annotations

from pathlib import Path

from accelsweep.base.errors import EXIT_INCOMPLETE, EXIT_OK, InputError
from accelsweep.core.outcome import Outcome
from accelsweep.core.plans import Manifest
from accelsweep.core.tasks import UNIT_OF
from accelsweep.drive.console import say
from accelsweep.report.format import number
from accelsweep.state.folders import SweepFolder, existing_sweep


def debug_in_foreground(home: Path, name: str, cell: str) -> int:
    """Run the cell whose name begins with `cell`; return 0 if it was measured, else 1."""
    from accelsweep.supervise.debug import debug_cell

    folder = existing_sweep(home, name)
    result = debug_cell(folder, full_name(folder, cell))
    say(f"{result.outcome}" + (f": {result.reason}" if result.reason else ""))
    for name in UNIT_OF:
        if (rate := result.metrics.get(name)) is not None and rate.value is not None:
            say(f"{number(rate.value, rate.unit)} (one run in the foreground, not recorded)")
    return EXIT_OK if result.outcome is Outcome.measured else EXIT_INCOMPLETE


def full_name(folder: SweepFolder, beginning: str) -> str:
    """Return the one runnable cell of the sweep whose name begins so. Raises InputError if there is none or several."""
    cells = [cell.name for cell in Manifest.read(folder.manifest).cells if cell.unsupported is None]
    matching = [cell for cell in cells if cell.startswith(beginning)]
    if len(matching) == 1:
        return matching[0]
    found = "is the beginning of several" if matching else "names no runnable setting"
    raise InputError(
        f"{beginning!r} {found}; the runnable settings of {folder.name!r} are: {', '.join(matching or cells)}"
    )
