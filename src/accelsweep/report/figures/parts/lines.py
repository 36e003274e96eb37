"""The lines of a chart over batch sizes: which settings stand on one line, and how a setting on it ended."""

from __future__ import annotations

from typing import Any

from accelsweep.core.cells.cell import label
from accelsweep.core.findings.findings import Findings
from accelsweep.core.findings.measured import CellFinding
from accelsweep.core.recorded.outcome import Outcome

MOST_SERIES = 8
"""More lines than there are colours to tell them apart make no picture."""


def series_of(cell: CellFinding, findings: Findings) -> str:
    """Return the common values of the cells on one line: every axis but the batch size, and their hardware."""
    axes = {key: value for key, value in cell.axes.items() if key != "batch_size"}
    name = label(axes or _everywhere(findings))
    return f"{name} | {cell.hardware}" if len(findings.hardware) > 1 and cell.hardware else name


def _everywhere(findings: Findings) -> dict[str, Any]:
    """Return the common values of all cells if only the batch size was swept, so that their one line has a name."""
    one = next((cell.effective for cell in findings.cells if cell.effective is not None), None)
    if one is None:
        return {}
    return {"accelerator": one.accelerator, "devices": one.world_size, "precision": one.precision}


def main_outcome(cell: CellFinding) -> Outcome:
    """Return `measured` if any run was measured, otherwise the most frequent outcome (the first of equals)."""
    if cell.measured:
        return Outcome.measured
    counted = sorted(cell.outcomes.items(), key=lambda item: (-item[1], item[0].value))
    return counted[0][0] if counted else Outcome.not_run
