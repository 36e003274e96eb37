"""Disturbed cells: measured while others used the machine. Their numbers have no verdict, whatever the interval."""

from __future__ import annotations

from accelsweep.analyse.collected.runs import CellRuns

MOST = 0.5
"""The largest share of disturbed runs with which a cell may still be judged."""


def disturbance(group: CellRuns) -> str | None:
    """Return the disturbance if more than `MOST` of a cell's rated runs had one, as `3 of 3 runs: ...`; else None."""
    found = [doubt for run in group.rated for doubt in run.doubts if doubt.disturbing]
    runs = sum(any(doubt.disturbing for doubt in run.doubts) for run in group.rated)
    if runs <= MOST * len(group.rated):
        return None
    return f"{runs} of {len(group.rated)} runs: {found[0].message}"
