"""The metrics that boosted trees report."""

from __future__ import annotations

from accelsweep.metrics import MetricInfo

METRICS = {
    "row_rounds_per_second": MetricInfo(
        "row rounds/s", "Rows times rounds of the window's fits, per second; `boosting` only, where each is a sample."
    ),
    "boosting_rounds": MetricInfo("rounds", "Rounds of one fit, as the trained model counts them."),
    "prepare_seconds": MetricInfo(
        "s",
        "Time in which rows are brought into the library's form, before the window; absent where fits do it.",
        "Preparing the rows",
    ),
}
