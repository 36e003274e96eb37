"""The table of measured cells: rate, speed-up, verdict, memory, energy, cost, quality and doubts, with intervals."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from accelsweep.core.findings import CellFinding, Estimate, Findings, Verdict
from accelsweep.core.metrics import MEMORY_METRICS
from accelsweep.core.prices import PriceUsed
from accelsweep.report import format as fmt
from accelsweep.report.table import Column, Entry, ReportTable


def cells_table(findings: Findings) -> ReportTable:
    """Return every cell that was measured at least once, fastest first; last those that missed their target."""
    measured = sorted(
        (cell for cell in findings.cells if cell.measured),
        key=lambda cell: -cell.rate.value if cell.rate else 0.0,
    )
    optional = [metric for metric in _OPTIONAL if _any_value(findings, metric[1])]
    quality = findings.quality_metric or "quality"
    columns = (
        "Setting",
        "Rate",
        "Speed-up",
        "Verdict",
        *(title for title, _ in optional),
        *(["Bottleneck"] if _broken_down(findings) else []),
        f"Quality ({quality})",
        "Doubts",
    )
    numeric = {"Rate", "Speed-up", *(title for title, _ in optional), f"Quality ({quality})"}
    return ReportTable(
        name="cells",
        title="Settings",
        caption="Measured settings, fastest first. Intervals stand in brackets; those of the speed-ups hold together "
        f"at {fmt.share(findings.confidence)}. Rates, times to a target, energy and costs are geometric means over the "
        "repeats. Quality is the mean; memory and the other readings are medians.",
        columns=tuple(Column(title, title in numeric) for title in columns),
        rows=tuple(_cell_row(findings, cell, optional) for cell in measured),
        data=[_cell_data(cell) for cell in findings.cells],
        empty="No setting was measured.",
    )


ENERGY = "joules_per_sample"

_OPTIONAL: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("Time to target", ("time_to_target", "time_to_target_seconds")),
    ("Median latency", ("query_seconds_p50",)),
    ("p90 latency", ("query_seconds_p90",)),
    ("p99 latency", ("query_seconds_p99",)),
    ("FLOP/s", ("flops_per_second",)),
    ("Bytes/s", ("bytes_per_second",)),
    ("Memory", MEMORY_METRICS),
    ("Energy", (ENERGY, "energy_joules")),
    ("Cost of 1M samples", ("usd_per_million_samples",)),
    ("Cost of an epoch", ("usd_per_epoch",)),
    ("Cost of a result", ("usd_per_result",)),
    ("MFU", ("mfu",)),
)
"""Columns that appear only where some cell has a value; where none has, `absent_metrics` says so once."""


def absent_metrics(findings: Findings) -> list[str]:
    """Return one line for each optional column that no cell can fill, with the reason that the measurement gave."""
    lines = []
    for title, names in _OPTIONAL:
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
        return _estimate(cell.time_to_target)
    name, cost = next(((name, cost) for name in names if (cost := cost_of(cell, name)) is not None), ("", None))
    if cost is not None:
        entry = _estimate(cost)
        scope = cell.metrics["energy_joules"].scope if name == ENERGY and "energy_joules" in cell.metrics else None
        return replace(entry, detail=" ".join(part for part in (entry.detail, scope) if part))
    if best is None:
        return Entry(fmt.ABSENT, (known[0].reason or "") if known else "", tone="absent")
    return Entry(fmt.summary(best), best.scope or "", order=best.median)


def cost_of(cell: CellFinding, name: str) -> Estimate | None:
    """Return one of a cell's costs or None; energy says in its unit that it is that of one sample."""
    cost = cell.costs.get(name)
    return cost.model_copy(update={"unit": "J/sample"}) if cost is not None and name == ENERGY else cost


def _cell_row(
    findings: Findings, cell: CellFinding, optional: Sequence[tuple[str, tuple[str, ...]]]
) -> tuple[Entry, ...]:
    short = " ".join(part for part in (cell.cell[:12], f"{cell.measured}/{cell.planned} repeats") if part)
    return (
        Entry(cell.label, short, tone="baseline" if cell.cell == findings.baseline else ""),
        _estimate(cell.rate),
        _speedup(cell),
        Entry(cell.verdict.value, _why(cell), tone=cell.verdict.value),
        *(metric_entry(cell, names) for _, names in optional),
        *([_bottleneck(cell)] if _broken_down(findings) else []),
        _quality(cell),
        Entry(", ".join(doubt.code for doubt in cell.doubts) or "none", tone="doubt" if cell.doubts else "absent"),
    )


def _broken_down(findings: Findings) -> bool:
    return any(cell.bottleneck is not None for cell in findings.cells)


def _bottleneck(cell: CellFinding) -> Entry:
    found = cell.bottleneck
    return Entry(fmt.ABSENT, tone="absent") if found is None else Entry(found.verdict, found.evidence)


def _why(cell: CellFinding) -> str:
    """Return the reason of a verdict, unless the interval beside it explains it."""
    plain = (Verdict.faster, Verdict.slower, Verdict.same, Verdict.baseline)
    if cell.verdict not in plain:
        return cell.verdict_reason
    rate = cell.rate
    return rate.reason or "" if rate and rate.low is None else ""


def _speedup(cell: CellFinding) -> Entry:
    if cell.speedup is not None:
        return Entry(*_split(fmt.ratio_text(cell.speedup.ratio)), order=cell.speedup.ratio.value)
    if cell.verdict is Verdict.baseline:
        return Entry("1x", "by definition", order=1.0)
    return Entry(cell.verdict.value, tone="absent")


def _estimate(value: Estimate | None) -> Entry:
    if value is None:
        return Entry(fmt.ABSENT, tone="absent")
    return Entry(*_split(fmt.estimate_text(value)), order=value.value)


def _quality(cell: CellFinding) -> Entry:
    if cell.quality is None:
        return Entry(fmt.ABSENT, cell.quality_verdict, tone="absent")
    # The column's head names the metric; repeating it in every row would only add noise.
    value, interval = _split(fmt.estimate_text(cell.quality.model_copy(update={"unit": ""})))
    return Entry(value, f"{interval} {quality_words(cell)}", order=cell.quality.value)


def quality_words(cell: CellFinding) -> str:
    """Return the verdict on quality without the word that is in the heading already."""
    return cell.quality_verdict.removeprefix("quality: ")


def _split(words: str) -> tuple[str, str]:
    """Split `2.1x [2.0, 2.2]` into the value and its interval, so that the interval can be set smaller.

    The reason for a missing interval stands beside the verdict, once, and in the CSV.
    """
    value, bracket, rest = words.partition(" [")
    if bracket:
        return value, f"[{rest}"
    value, bracket, _ = words.partition(" (no interval")
    return value, "no interval" if bracket else ""


def _cell_data(cell: CellFinding) -> dict[str, Any]:
    ratio = cell.speedup.ratio if cell.speedup else None
    data: dict[str, Any] = {"cell": cell.cell, "label": cell.label}
    data |= {f"axis.{key}": value for key, value in cell.axes.items()}
    data |= {"hardware": cell.hardware, "planned": cell.planned, "measured": cell.measured}
    data |= _estimate_data("rate", cell.rate)
    data |= _estimate_data("speedup", ratio)
    data |= {"speedup.paired": cell.speedup.paired if cell.speedup else None}
    data |= {"verdict": cell.verdict.value, "verdict_reason": cell.verdict_reason}
    data |= _estimate_data("time_to_target", cell.time_to_target)
    data |= _estimate_data("quality", cell.quality)
    data |= _estimate_data("quality_difference", cell.quality_difference)
    for name in sorted(cell.costs):
        data |= _estimate_data(name, cost_of(cell, name))
    data |= {"quality_verdict": cell.quality_verdict}
    data |= {"bottleneck": cell.bottleneck.verdict if cell.bottleneck else None}
    for name, summary in sorted(cell.metrics.items()):
        for field in ("median", "minimum", "maximum", "unit", "reason"):
            data[f"{name}.{field}"] = getattr(summary, field)
    data |= {f"effective.{key}": value for key, value in sorted(cell.effective.items())}
    return data | {"doubts": "; ".join(doubt.code for doubt in cell.doubts), "reasons": "; ".join(cell.reasons)}


def _estimate_data(name: str, value: Estimate | None) -> dict[str, Any]:
    fields = ("value", "low", "high", "unit", "confidence", "count", "reason")
    return {f"{name}.{field}": getattr(value, field) if value else None for field in fields}
