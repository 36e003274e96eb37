"""The minutes that more blocks take, by the wall times of the runs so far."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean

from accelsweep.analyse.runs import CellRuns
from accelsweep.core.plans import Manifest


def block_seconds(groups: Sequence[CellRuns], manifest: Manifest) -> float | None:
    """Return the seconds that the runs of one more block take after one another, by the mean of each cell's runs.

    The baseline counts as often as a new block holds it. Runs that failed count as well: a new block holds their cells
    too. None where no run has a wall time.
    """
    walls: dict[str, list[float]] = {}
    for run in (run for group in groups for run in group.runs):
        if run.wall_seconds is not None:
            walls.setdefault(run.cell, []).append(run.wall_seconds)
    if not walls:
        return None
    others = sum(cell != manifest.baseline for cell in walls)
    times = max(1, min(manifest.settings.block.baseline_runs, others))
    return sum(fmean(seconds) * (times if cell == manifest.baseline else 1) for cell, seconds in walls.items())
