"""The number of repeats behind the ratios of a sweep: one number for the doubt, the visible effect and the advice."""

from __future__ import annotations

from collections.abc import Sequence

from accelsweep.core.findings.measured import CellFinding
from accelsweep.core.findings.numbers import Verdict
from accelsweep.core.planned.plans import Manifest


def planned_repeats(cells: Sequence[CellFinding], manifest: Manifest) -> int:
    """Return the planned blocks of the compared row that has the fewest; they are the units of its interval.

    The baseline stands in every block, also in those of cells that joined the plan later, so it counts only where
    nothing else is planned. Rows on different hardware count apart; a refused row only where all are refused. Where
    nothing is planned to run, this is the number that the plan would want of a cell.
    """
    counts = [(cell, len({run.block for run in cell.runs})) for cell in cells]
    planned = [(cell, count) for cell, count in counts if count]
    others = [(cell, count) for cell, count in planned if cell.cell != manifest.baseline]
    compared = [(cell, count) for cell, count in others if cell.verdict is not Verdict.refused]
    return min((count for _, count in compared or others or planned), default=manifest.settings.repeats)
