"""The time of a cell's steps by part: the mean of its runs' shares, judged by the same rule as one run."""

from __future__ import annotations

from accelsweep.analyse.collected.runs import CellRuns, RunRow
from accelsweep.analyse.statistics.intervals import mean, significant
from accelsweep.core.findings.measured import StepBottleneck
from accelsweep.core.recorded.breakdown import PARTS, bottleneck


def bottleneck_of(group: CellRuns) -> StepBottleneck | None:
    """Return the bottleneck of a cell, or None if no run of it has a breakdown.

    Runs count alike. A part is left out for all if a run could not measure it.
    """
    runs = [shares for run in group.measured if (shares := _shares(run))]
    if not runs:
        return None
    parts = [part for part in PARTS if all(part in shares for shares in runs)]
    shares = {part: mean([shares[part] for shares in runs]) for part in parts}
    behind = group.values("device_behind_share")
    verdict, evidence = bottleneck(shares, mean(behind) if behind else None)
    rounded = {part: significant(share) for part, share in shares.items()}
    return StepBottleneck(verdict=verdict, evidence=evidence, shares=rounded, count=len(runs))


def _shares(run: RunRow) -> dict[str, float]:
    found = {part: run.value(f"{part}_share") for part in PARTS}
    return {part: share for part, share in found.items() if share is not None}
