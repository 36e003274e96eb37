"""The metrics reported for single operations."""

from __future__ import annotations

from accelsweep.metrics import MetricInfo

METRICS = {
    "flops_per_second": MetricInfo("FLOP/s", "A kernel's operations per second, as its algorithm requires.", "FLOP/s"),
    "bytes_per_second": MetricInfo(
        "B/s", "Bytes that a kernel reads and writes per second, as its algorithm requires.", "Bytes/s"
    ),
}
