"""The metrics reported for inference under load."""

from __future__ import annotations

from accelsweep.metrics import MetricInfo

METRICS = {
    "query_seconds_p50": MetricInfo(
        "s", "Median latency of at least 20 queries; with `server`, at the highest load.", "Median latency"
    ),
    "queries_per_second": MetricInfo(
        "queries/s", "Highest load at which answers meet `serving.latency_ms`; `server` only."
    ),
    "batch_samples_per_second": MetricInfo(
        "1/s",
        "Rate of consecutive full batches, before the load tests; `server` only.",
        "Full batches, without a load",
    ),
    "answered_together": MetricInfo(
        "queries", "Mean number of queries in a batch, at the highest load.", "Queries in a batch"
    ),
    "joules_per_query": MetricInfo("J", "Energy per query at the highest load, from the counter of `energy_joules`."),
    "load_tests": MetricInfo("tests", "LoadGen tests run until the highest load was found."),
    "half_load_query_seconds_mean": MetricInfo("s", "Mean query latency at half the highest load."),
    "half_load_query_seconds_p50": MetricInfo(
        "s", "Median query latency at half the highest load.", "Median latency at half load"
    ),
    "half_load_query_seconds_p90": MetricInfo("s", "90th percentile of the query latency at half the highest load."),
    "half_load_query_seconds_p99": MetricInfo(
        "s", "99th percentile of the query latency at half the highest load.", "p99 latency at half load"
    ),
    "loadgen_samples_per_second": MetricInfo("1/s", "The rate measured by LoadGen; `serving.generator=loadgen` only."),
    "loadgen_query_seconds_p50": MetricInfo("s", "Median latency of LoadGen's queries; not in `offline`."),
    "loadgen_query_seconds_p90": MetricInfo("s", "90th latency percentile of LoadGen's queries; not in `offline`."),
    "loadgen_query_seconds_p99": MetricInfo("s", "99th latency percentile of LoadGen's queries; not in `offline`."),
}
