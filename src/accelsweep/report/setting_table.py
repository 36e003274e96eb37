"""The readings of a cell as words: metrics, costs and energy, each with its interval or the reason for having none."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any

from accelsweep.config.prices import PriceUsed
from accelsweep.config.tasks import SIZES
from accelsweep.records.estimates import Estimate, Verdict
from accelsweep.records.findings import CellFinding, Findings
from accelsweep.records.metrics import MEMORY_METRICS
from accelsweep.records.run_record import doubt_in_words
from accelsweep.report import units as fmt
from accelsweep.report.table_model import Column, Entry, More, ReportTable

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


# The part that a row of the settings opens to: readings, bottleneck, reasons, doubts, and what to type or to paste.


def common_scopes(cells: Sequence[CellFinding]) -> dict[str, str]:
    """Return, by the reading's title, the sentence on what it covers where that is the same for all cells."""
    found = {}
    for title, names in OPTIONAL:
        scopes = {_scope(cell, names) for cell in cells if metric_entry(cell, names).order is not None}
        if len(cells) > 1 and len(scopes) == 1 and (scope := scopes.pop()):
            found[title] = f"{title}: {scope}."
    return found


def _scope(cell: CellFinding, names: Sequence[str]) -> str:
    known = (cell.metrics[name] for name in names if name in cell.metrics)
    return next((one.scope or "" for one in known if one.median is not None), "")


def known_readings(cells: Sequence[CellFinding]) -> frozenset[str]:
    """Return the titles of the readings that some cell has."""
    return frozenset(
        title for title, names in OPTIONAL if any(metric_entry(cell, names).order is not None for cell in cells)
    )


def more_of(cell: CellFinding, said: Mapping[str, str], known: Collection[str]) -> tuple[More, ...]:
    """Return the lines of one cell.

    `said` has the readings whose scope stands once above all rows, `known` those that some cell has.
    """
    lines = [*_readings(cell, said, known), *_bottleneck(cell), *_why(cell)]
    lines += [
        More(
            "Doubt",
            f"{doubt_in_words(doubt)} ({doubt.code}): {doubt.message.rstrip('.')}. {fmt.sentence(doubt.remedy)}",
        )
        for doubt in cell.doubts
    ]
    lines.append(More("Repeats", f"{cell.measured} of {cell.planned} measured; the setting is {cell.cell} in files"))
    lines += [More("Measure it again", cell.again, code=True)] if cell.again else []
    lines += [More("Trainer", cell.trainer, code=True)] if cell.trainer else []
    return tuple(lines)


def _readings(cell: CellFinding, said: Mapping[str, str], known: Collection[str]) -> list[More]:
    """Return the readings that the cell has, and the reason for those that only others have."""
    lines = []
    for title, names in OPTIONAL:
        entry = metric_entry(cell, names)
        if entry.order is None:
            lines += [More(title, f"{entry.text}: {entry.detail}")] if entry.detail and title in known else []
            continue
        detail = entry.detail.removesuffix(_scope(cell, names)).strip() if title in said else entry.detail
        beside = [detail, cell.memory_words if title == "Memory" else ""]
        text = fmt.share(entry.order) if title == "MFU" else entry.text
        lines.append(More(title, ", ".join(part for part in (text, *beside) if part)))
    return lines


def _bottleneck(cell: CellFinding) -> list[More]:
    found = cell.bottleneck
    return [] if found is None else [More("Bottleneck", f"{found.verdict}: {found.evidence}")]


def _why(cell: CellFinding) -> list[More]:
    """Return why the verdict is what it is, and why runs failed."""
    if cell.verdict is Verdict.baseline:
        lines = [More("Verdict", "this is the baseline, which the others are compared with")]
    else:
        lines = [More("Verdict", f"{cell.verdict.value}: {cell.verdict_reason}")]
    rate = cell.rate
    if rate is not None and rate.low is None and rate.reason:
        lines.append(More("No interval", rate.reason))
    difference = cell.quality_difference
    if difference is not None:
        bare = difference.model_copy(update={"unit": ""})
        lines.append(More("Quality beside the baseline", fmt.estimate_text(bare)))
    return [*lines, *(More("Not measured", reason) for reason in cell.reasons)]


# The table of measured cells: rate, speed-up, verdict, memory, energy, cost, quality and doubts, with intervals.


def cells_table(findings: Findings) -> ReportTable:
    """Return every cell that was measured at least once, fastest first; last those that missed their target."""
    measured = sorted(
        (cell for cell in findings.cells if cell.measured),
        key=lambda cell: -cell.rate.value if cell.rate else 0.0,
    )
    quality = (findings.quality_metric or "quality").removeprefix("val_")
    rate, ratio = fmt.rate_title(findings.rate_metric), fmt.ratio_title(findings.rate_metric)
    titles = ("Setting", *map(str.capitalize, (rate, ratio)), "Verdict", quality[0].upper() + quality[1:], "Doubts")
    said, known = common_scopes(measured), known_readings(measured)
    return ReportTable(
        name="cells",
        title="Settings",
        caption=" ".join([_caption(findings), *said.values()]),
        columns=tuple(Column(title, title not in ("Setting", "Verdict", "Doubts")) for title in titles),
        rows=tuple(_cell_row(findings, cell) for cell in measured),
        data=[_cell_data(cell) for cell in findings.cells],
        empty="No setting was measured.",
        more=tuple(more_of(cell, said, known) for cell in measured),
    )


def _caption(findings: Findings) -> str:
    order = "the largest" if findings.rate_metric in SIZES else "fastest"
    sure = (
        f"those of the {fmt.ratio_title(findings.rate_metric)}s are {fmt.share(findings.confidence)} sure all at once"
    )
    return (
        f"Measured settings, {order} first; each opens to the rest that is known of it. Intervals stand in brackets; "
        f"{sure}. Rates, times to a target, energy and costs are geometric means over the repeats. "
        "Quality is the mean; memory and the other readings are medians."
    )


def _cell_row(findings: Findings, cell: CellFinding) -> tuple[Entry, ...]:
    repeats = "" if cell.measured == cell.planned else f"{cell.measured} of {cell.planned} repeats"
    doubts = "; ".join(doubt_in_words(doubt) for doubt in cell.doubts)
    return (
        Entry(cell.label, repeats, tone="baseline" if cell.cell == findings.baseline else ""),
        estimate(cell.rate),
        _speedup(cell),
        Entry(cell.verdict.value, tone=cell.verdict.value),
        _quality(cell),
        Entry(doubts or "none", tone="doubt" if cell.doubts else "absent"),
    )


def _speedup(cell: CellFinding) -> Entry:
    if cell.ratio is not None:
        return Entry(*split(fmt.ratio_text(cell.ratio)), order=cell.ratio.value)
    if cell.verdict is Verdict.baseline:
        return Entry("1x", "by definition", order=1.0)
    return Entry(cell.verdict.value, tone="absent")


def _quality(cell: CellFinding) -> Entry:
    if cell.quality is None:
        return Entry(fmt.ABSENT, cell.quality_verdict, tone="absent")
    # The column's head names the metric; repeating it in every row would only add noise.
    value, interval = split(fmt.estimate_text(cell.quality.model_copy(update={"unit": ""})))
    return Entry(value, f"{interval} {quality_words(cell)}", order=cell.quality.value)


def _cell_data(cell: CellFinding) -> dict[str, Any]:
    data: dict[str, Any] = {"cell": cell.cell, "label": cell.label}
    data |= {f"axis.{key}": value for key, value in cell.axes.items()}
    data |= {"hardware": cell.hardware, "planned": cell.planned, "measured": cell.measured}
    data |= _estimate_data("rate", cell.rate)
    data |= _estimate_data("speedup", cell.ratio)
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
    in_force = {} if cell.effective is None else cell.effective.model_dump(mode="json")
    data |= {f"effective.{key}": value for key, value in sorted(in_force.items())}
    return data | {"doubts": "; ".join(doubt.code for doubt in cell.doubts), "reasons": "; ".join(cell.reasons)}


def _estimate_data(name: str, value: Estimate | None) -> dict[str, Any]:
    fields = ("value", "low", "high", "unit", "confidence", "count", "reason")
    return {f"{name}.{field}": getattr(value, field) if value else None for field in fields}
