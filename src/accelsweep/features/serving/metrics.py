"""The metrics that inference under load reports."""

from __future__ import annotations

from accelsweep.metrics import MetricInfo

METRICS = {
    "query_seconds_p50": MetricInfo(
        "s", "Median time of a query, from 20 queries on; under `server` at the highest load.", "Median latency"
    ),
    "queries_per_second": MetricInfo(
        "queries/s", "Highest load whose answers keep `serving.latency_ms`; `server` only."
    ),
    "batch_samples_per_second": MetricInfo(
        "1/s",
        "Rate of full batches, one after another, before the load; `server` only.",
        "Full batches, without a load",
    ),
    "answered_together": MetricInfo(
        "queries", "Mean number of queries in a batch, at the highest load.", "Queries in a batch"
    ),
    "joules_per_query": MetricInfo("J", "Energy of a query at the highest load, by the counter of `energy_joules`."),
    "load_tests": MetricInfo("tests", "LoadGen's tests until the highest load was found."),
    "half_load_query_seconds_mean": MetricInfo("s", "Mean time of a query at half of the highest load."),
    "half_load_query_seconds_p50": MetricInfo(
        "s", "Median time of a query at half of the highest load.", "Median latency at half load"
    ),
    "half_load_query_seconds_p90": MetricInfo(
        "s", "90th percentile of the queries' times at half of the highest load."
    ),
    "half_load_query_seconds_p99": MetricInfo(
        "s", "99th percentile of the queries' times at half of the highest load.", "p99 latency at half load"
    ),
    "loadgen_samples_per_second": MetricInfo("1/s", "The rate as LoadGen finds it; `serving.generator=loadgen` only."),
    "loadgen_query_seconds_p50": MetricInfo("s", "Median time of LoadGen's queries; not in `offline`."),
    "loadgen_query_seconds_p90": MetricInfo("s", "90th percentile of LoadGen's queries' times; not in `offline`."),
    "loadgen_query_seconds_p99": MetricInfo("s", "99th percentile of LoadGen's queries' times; not in `offline`."),
}
