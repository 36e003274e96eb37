"""The metrics reported for boosted trees."""

from __future__ import annotations

from accelsweep.metrics import MetricInfo

METRICS = {
    "row_rounds_per_second": MetricInfo(
        "row rounds/s",
        "Rows times boosting rounds per second; `boosting` only, where a row counts as a sample in every round.",
    ),
    "boosting_rounds": MetricInfo("rounds", "Boosting rounds per fit, as reported by the trained model."),
    "prepare_seconds": MetricInfo(
        "s",
        "Time to convert the rows to the library's format before the window; absent if each fit converts them.",
        "Preparing the rows",
    ),
}
