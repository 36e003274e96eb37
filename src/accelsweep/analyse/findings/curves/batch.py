"""Throughput against batch size, with the knee (the rate stops to grow) and the frontier (memory ends)."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from accelsweep.analyse.collected.runs import CellRuns
from accelsweep.analyse.findings.curves.series import series, series_label
from accelsweep.analyse.statistics.intervals import mean
from accelsweep.core.findings.series import BatchCurve
from accelsweep.core.recorded.hardware import HardwareKind
from accelsweep.core.recorded.outcome import Outcome

NEAR_THE_BEST = 0.95
"""The knee is the smallest batch that reaches this part of the series' best rate."""


def batch_curves(groups: Sequence[CellRuns], hardware: Mapping[HardwareKind, str]) -> tuple[BatchCurve, ...]:
    """Return the curves of cells that differ in `batch_size` only; `hardware` names kinds of hardware by their JSON."""
    return tuple(_curve(members, hardware) for members in series(groups, ("batch_size",)))


def _curve(members: Sequence[CellRuns], hardware: Mapping[HardwareKind, str]) -> BatchCurve:
    curve = sorted(members, key=lambda group: group.batch_size)
    rates = {group.cell: mean(list(group.log_rates.values())) for group in curve if group.rated}
    exhausted = [group.batch_size for group in curve if any(run.outcome is Outcome.out_of_memory for run in group.runs)]
    return BatchCurve(
        series=series_label(curve[0].planned.axes, ("batch_size",)),
        hardware=hardware.get(curve[0].hardware),
        cells=tuple(group.cell for group in curve),
        knee=_knee(curve, rates),
        largest_measured=max((group.batch_size for group in curve if group.measured), default=None),
        smallest_out_of_memory=min(exhausted, default=None),
    )


def _knee(curve: Sequence[CellRuns], log_rates: Mapping[str, float]) -> str | None:
    if len(log_rates) < 2:
        return None
    enough = max(log_rates.values()) + math.log(NEAR_THE_BEST)
    return next(group.cell for group in curve if log_rates.get(group.cell, -math.inf) >= enough)
