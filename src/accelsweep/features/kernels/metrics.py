"""The metrics that single operations report."""

from __future__ import annotations

from accelsweep.metrics import Meaning

METRICS = {
    "flops_per_second": Meaning("FLOP/s", "Operations of a kernel per second, counted by its algorithm.", "FLOP/s"),
    "bytes_per_second": Meaning(
        "B/s", "Bytes that a kernel reads and writes per second, counted by its algorithm.", "Bytes/s"
    ),
}
