"""The values of the settings on one side of a claim's figure, per block, or the reason why there are none."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from accelsweep.analyse.claims.named import Side
from accelsweep.analysis.baseline_comparison import endings
from accelsweep.analysis.intervals import Interval, mean
from accelsweep.analysis.run_results import CellRuns, RunRow
from accelsweep.core.claims.claims import ClaimFigure
from accelsweep.core.claims.expressions import Factor, factors
from accelsweep.core.claims.verdicts import ClaimVerdict
from accelsweep.records.run_record import Outcome
from accelsweep.significant_digits import count_of

COUNTED_PROVENANCE = "counted"
"""The provenance of a metric that is a number of things, known without noise."""

Missing = tuple[ClaimVerdict, str]
"""The verdict and the reason for a side of a figure that has no value."""


def unnamed(side: Side) -> Missing | None:
    """Return why the cells that were found are not the one cell that a figure must name, or None if they are."""
    cells, words = len({group.cell for group in side.cells}), _words(side.wanted)
    if not cells:
        return ClaimVerdict.not_testable, f"no setting of this sweep has {words}"
    if not side.known:
        may = f"{count_of(cells, 'setting')} may: {endings(side.cells[0])}"
        return ClaimVerdict.not_testable, f"no setting of this sweep is known to have {words}; {may}"
    if cells > 1:
        return ClaimVerdict.not_testable, f"{cells} settings of this sweep have {words}; the claim must name one"
    return None


def unmeasured(figure: ClaimFigure, side: Side) -> Missing | None:
    """Return why the runs of this side have no value of the figure's metric, or None if they have one."""
    cells, words = side.cells, _words(side.wanted)
    if any(ended(group) if figure.outcome is not None else logs_of(group, figure) for group in cells):
        return None
    runs = [run for group in cells for run in group.runs]
    if any(measured_of(group) for group in cells):
        return ClaimVerdict.not_testable, f"{words}: {_absent(figure, cells)}"
    if runs and all(run.outcome is Outcome.not_run for run in runs):
        return ClaimVerdict.not_run, f"{words}: {runs[0].reason}"
    return ClaimVerdict.not_testable, f"{words}: {endings(cells[0])}"


def _words(wanted: Mapping[str, Any]) -> str:
    return ", ".join(f"{key}={'null' if value is None else value}" for key, value in wanted.items())


def _absent(figure: ClaimFigure, cells: Sequence[CellRuns]) -> str:
    """Return which metric of the expression no run has, with the reason that the runs give."""
    runs = [run for group in cells for run in measured_of(group)]
    for name in figure.metrics:
        if not any(run.value(name) for run in runs):
            reason = next((run.metrics[name].reason for run in runs if name in run.metrics), None)
            return f"{name} was not measured" + (f" ({reason})" if reason else "")
    return f"{figure.metric} was not measured"


def logs_of(group: CellRuns, figure: ClaimFigure) -> dict[str, float]:
    """Return the natural logarithm of the figure's metric per block; runs that share a block are averaged."""
    found: dict[str, list[float]] = {}
    parts = factors(figure.metric)
    for run in measured_of(group):
        logs = [_log(run, part) for part in parts]
        if None not in logs:
            found.setdefault(run.block or "", []).append(math.fsum(log for log in logs if log is not None))
    return {block: mean(values) for block, values in found.items()}


def exact_interval(group: CellRuns, figure: ClaimFigure, logs: Mapping[str, float]) -> Interval | None:
    """Return an interval without width where everything in the expression was counted, without noise; or None."""
    readings = [run.metrics[name] for run in measured_of(group) for name in figure.metrics if name in run.metrics]
    if len(set(logs.values())) > 1 or any(reading.provenance != COUNTED_PROVENANCE for reading in readings):
        return None
    return Interval(next(iter(logs.values())), 0.0, len(logs))


def measured_of(group: CellRuns) -> list[RunRow]:
    """Return the measured runs, also those without the rate that the sweep's cells are compared by."""
    return [run for run in group.runs if run.outcome is Outcome.measured]


def ended(group: CellRuns) -> list[Outcome]:
    """Return how the runs that began have ended, once for each block: runs that share one share a seed."""
    began = [run for run in group.runs if run.outcome not in (Outcome.not_run, Outcome.unsupported)]
    return list({run.block: run.outcome for run in reversed(began)}.values())


def _log(run: RunRow, part: Factor) -> float | None:
    value = run.value(part.of) if isinstance(part.of, str) else part.of
    return part.exponent * math.log(value) if value is not None and value > 0 else None
