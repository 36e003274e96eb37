"""The tasks, each a way to use model and data, and the rate by which a sweep compares its cells."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

TaskName = Literal[
    "train_throughput",
    "time_to_accuracy",
    "inference",
    "kernels",
    "memory_frontier",
    "boosting",
]
"""The kinds of work of a run."""

RateName = Literal[
    "samples_per_second",
    "results_per_hour",
    "flops_per_second",
    "bytes_per_second",
    "queries_per_second",
    "largest_batch",
    "row_rounds_per_second",
]
"""The metrics that cells can be compared by: more is better."""

SIZES = frozenset({"largest_batch"})
"""Those that are no rates but sizes: more of them is larger, not faster."""

TITLES = {"largest_batch": "largest batch"}
"""Metric -> what headings call it, where that is not "rate"."""

UNIT_OF: dict[str, str] = {
    "samples_per_second": "1/s",
    "results_per_hour": "results/h",
    "flops_per_second": "FLOP/s",
    "bytes_per_second": "B/s",
    "queries_per_second": "queries/s",
    "largest_batch": "samples",
    "row_rounds_per_second": "row rounds/s",
}
"""Rate -> its unit."""

RATES_OF: dict[str, tuple[RateName, ...]] = {
    "train_throughput": ("samples_per_second",),
    "time_to_accuracy": ("results_per_hour", "samples_per_second"),
    "inference": ("samples_per_second",),
    "serving": ("queries_per_second",),
    "kernels": ("samples_per_second", "flops_per_second", "bytes_per_second"),
    "memory_frontier": ("largest_batch",),
    "boosting": ("row_rounds_per_second", "samples_per_second"),
}
"""Work -> the rates that it measures. Cells are compared by the first, if `analysis.rate` names no other.

A cell's work (`CellConfig.work`) is its task, or `serving` for inference in the scenario `server`.
"""


def compared_rate(wanted: str | None, works: Iterable[str]) -> str:
    """Return the metric that a sweep's cells are compared by: `wanted`, or that of the first of its `works`."""
    return wanted or RATES_OF.get(next(iter(works), ""), ("samples_per_second",))[0]
