"""Every metric of a cell over its repeats: the median and the range, or the reason why there is none."""

from __future__ import annotations

from collections.abc import Iterable
from statistics import median

from accelsweep.analyse.collected.runs import CellRuns, Reading
from accelsweep.analyse.statistics.intervals import significant
from accelsweep.core.findings.numbers import Summary


def summaries(group: CellRuns) -> dict[str, Summary]:
    """Return the summary of each metric that a measured run of the cell has, by name in alphabetical order."""
    names = sorted({name for run in group.measured for name in run.metrics})
    return {name: _summary([run.metrics[name] for run in group.measured if name in run.metrics]) for name in names}


def _summary(metrics: list[Reading]) -> Summary:
    values = [metric.value for metric in metrics if metric.value is not None]
    reasons = sorted({metric.reason for metric in metrics if metric.reason is not None})
    return Summary(
        median=significant(median(values)) if values else None,
        minimum=significant(min(values)) if values else None,
        maximum=significant(max(values)) if values else None,
        count=len(values),
        unit=metrics[0].unit,
        reason="; ".join(reasons) or None,
        scope=_joined(metric.scope for metric in metrics),
        provenance=_joined(metric.provenance for metric in metrics),
    )


def _joined(words: Iterable[str | None]) -> str | None:
    return " and ".join(sorted({word for word in words if word is not None})) or None
