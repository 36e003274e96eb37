"""The readings of a cell as words: metrics, costs and energy, each with its interval or the reason for having none."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from accelsweep.core.findings.findings import Findings
from accelsweep.core.findings.measured import CellFinding
from accelsweep.core.findings.numbers import Estimate
from accelsweep.core.planned.prices import PriceUsed
from accelsweep.core.recorded.metrics import MEMORY_METRICS
from accelsweep.report import format as fmt
from accelsweep.report.table import Entry

ENERGY = "joules_per_sample"

MEMORIES = {
    "peak_memory_reserved_bytes": "peak memory, reserved",
    "peak_memory_allocated_bytes": "peak memory, allocated",
    "device_memory_used_bytes": "device memory after the window",
    "host_pss_bytes": "host memory after the window",
}
"""The name of an axis or a reading by its metric: not every memory is a peak."""

OPTIONAL: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("Time to target", ("time_to_target", "time_to_target_seconds")),
    ("Median latency", ("query_seconds_p50",)),
    ("p90 latency", ("query_seconds_p90",)),
    ("p99 latency", ("query_seconds_p99",)),
    ("Median latency at half load", ("half_load_query_seconds_p50",)),
    ("p99 latency at half load", ("half_load_query_seconds_p99",)),
    ("Queries in a batch", ("answered_together",)),
    ("Full batches, without a load", ("batch_samples_per_second",)),
    ("Preparing the rows", ("prepare_seconds",)),
    ("FLOP/s", ("flops_per_second",)),
    ("Bytes/s", ("bytes_per_second",)),
    ("Memory", MEMORY_METRICS),
    ("Energy", (ENERGY, "energy_joules")),
    ("Wait in the queue", ("job_queue_seconds",)),
    ("Energy of the whole job", ("job_energy_joules",)),
    ("Cost of 1M samples", ("usd_per_million_samples",)),
    ("Cost of an epoch", ("usd_per_epoch",)),
    ("Cost of a result", ("usd_per_result",)),
    ("MFU", ("mfu",)),
)
"""The readings that a row opens to, where the cell has a value; where none has, `absent_metrics` says so once."""


def absent_metrics(findings: Findings) -> list[str]:
    """Return one line for each optional column that no cell can fill, with the reason that the measurement gave."""
    lines = []
    for title, names in OPTIONAL:
        if _any_value(findings, names):
            continue
        reasons = [cell.metrics[name].reason for cell in findings.cells for name in names if name in cell.metrics]
        reason = next((reason for reason in reasons if reason), None)
        if reason is not None:
            lines.append(f"{title}: {fmt.absent(reason)}.")
    return lines + cost_words(findings)


def cost_words(findings: Findings) -> list[str]:
    """Return the prices behind the costs with their dates and sources, and the missing costs with the reasons."""
    if findings.costs_note:
        return [f"Cost: {findings.costs_note.rstrip('.')}."]
    priced = [f"Priced with {_price_words(price)}." for price in findings.prices]
    return priced + list(findings.cost_gaps)


def _price_words(price: PriceUsed) -> str:
    origin = ", ".join(part for part in (price.source, price.date) if part) or "your own figure, without a source"
    return f"{price.name} at {price.value:g} {price.unit} ({origin})"


def _any_value(findings: Findings, names: Sequence[str]) -> bool:
    return any(metric_entry(cell, names).order is not None for cell in findings.cells)


def metric_entry(cell: CellFinding, names: Sequence[str]) -> Entry:
    """Return the first of the named estimates and metrics that the cell has, or the reason for having none."""
    known = [cell.metrics[name] for name in names if name in cell.metrics]
    best = next((summary for summary in known if summary.median is not None), None)
    if "time_to_target" in names and cell.time_to_target is not None:
        return estimate(cell.time_to_target)
    name, cost = next(((name, cost) for name in names if (cost := cost_of(cell, name)) is not None), ("", None))
    if cost is not None:
        entry = estimate(cost)
        scope = cell.metrics["energy_joules"].scope if name == ENERGY and "energy_joules" in cell.metrics else None
        return replace(entry, detail=" ".join(part for part in (entry.detail, scope) if part))
    if best is None:
        return Entry(fmt.ABSENT, (known[0].reason or "") if known else "", tone="absent")
    return Entry(fmt.summary(best), best.scope or "", order=best.median)


def cost_of(cell: CellFinding, name: str) -> Estimate | None:
    """Return one of a cell's costs or None; energy says in its unit that it is that of one sample."""
    cost = cell.costs.get(name)
    return cost.model_copy(update={"unit": "J/sample"}) if cost is not None and name == ENERGY else cost


def estimate(value: Estimate | None) -> Entry:
    """Return an estimate with its interval beside it."""
    if value is None:
        return Entry(fmt.ABSENT, tone="absent")
    return Entry(*split(fmt.estimate_text(value)), order=value.value)


def quality_words(cell: CellFinding) -> str:
    """Return the verdict on quality without the word that is in the heading already."""
    return cell.quality_verdict.removeprefix("quality: ")


def split(words: str) -> tuple[str, str]:
    """Split `2.1x [2.0, 2.2]` into the value and its interval, so that the interval can be set smaller.

    The reason for a missing interval stands beside the verdict, once, and in the CSV.
    """
    value, bracket, rest = words.partition(" [")
    if bracket:
        return value, f"[{rest}"
    value, bracket, _ = words.partition(" (no interval")
    return value, "no interval" if bracket else ""
