"""The minutes that more blocks take, by the wall times of the runs so far."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime
from itertools import pairwise
from statistics import fmean

from accelsweep.analyse.collected.runs import CellRuns, RunRow
from accelsweep.core.planned.plans import Manifest


def block_seconds(groups: Sequence[CellRuns], manifest: Manifest) -> float | None:
    """Return the seconds that one more block takes: its start, and its runs by the mean of each cell's runs.

    The baseline counts as often as a new block holds it. Runs that failed count as well: a new block holds their cells
    too. None where no run has a wall time.
    """
    runs = [run for group in groups for run in group.runs]
    walls: dict[str, list[float]] = {}
    for run in runs:
        if run.wall_seconds is not None:
            walls.setdefault(run.cell, []).append(run.wall_seconds)
    if not walls:
        return None
    others = sum(cell != manifest.baseline for cell in walls)
    times = max(1, min(manifest.settings.block.baseline_runs, others))
    measuring = sum(fmean(seconds) * (times if cell == manifest.baseline else 1) for cell, seconds in walls.items())
    return _start_seconds(runs) + measuring


def _start_seconds(runs: Iterable[RunRow]) -> float:
    """Return the shortest pause between two blocks; 0 where there is none. Longer ones hold more than a start."""
    spans: dict[str, list[tuple[datetime, datetime]]] = {}
    for run in runs:
        if run.block and run.started_at and run.finished_at:
            span = datetime.fromisoformat(run.started_at), datetime.fromisoformat(run.finished_at)
            spans.setdefault(run.block, []).append(span)
    blocks = sorted((min(start for start, _ in each), max(end for _, end in each)) for each in spans.values())
    pauses = [(after[0] - before[1]).total_seconds() for before, after in pairwise(blocks)]
    return min((pause for pause in pauses if pause >= 0.0), default=0.0)
