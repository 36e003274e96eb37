"""The metrics that single operations report."""

from __future__ import annotations

from accelsweep.metrics import MetricInfo

METRICS = {
    "flops_per_second": MetricInfo("FLOP/s", "Operations of a kernel per second, counted by its algorithm.", "FLOP/s"),
    "bytes_per_second": MetricInfo(
        "B/s", "Bytes that a kernel reads and writes per second, counted by its algorithm.", "Bytes/s"
    ),
}
