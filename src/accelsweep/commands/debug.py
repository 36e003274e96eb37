"""`accelsweep debug`: one cell of a sweep in the foreground."""

from __future__ import annotations

from pathlib import Path

from accelsweep.cli.runs import full_name
from accelsweep.config.schema import UNIT_OF
from accelsweep.driver.console import say
from accelsweep.errors import EXIT_INCOMPLETE, EXIT_OK
from accelsweep.records.layout import existing_sweep
from accelsweep.records.run_record import Outcome
from accelsweep.report.units import number


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
