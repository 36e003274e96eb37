"""The table of settings: rate, speed-up, verdict, quality and doubts, and the readings that each row expands to."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cache
from typing import Any

from pydantic_core import to_jsonable_python

from accelsweep import registry
from accelsweep.metrics import MEMORY_METRICS, Meaning, metrics
from accelsweep.records.estimates import Estimate, Verdict
from accelsweep.records.findings import CellFinding, Findings
from accelsweep.records.run_record import doubt_in_words
from accelsweep.registry import Feature
from accelsweep.report import units as fmt
from accelsweep.report.table_model import Column, Detail, Entry, ReportTable
from accelsweep.tasks import SIZES

ENERGY = "joules_per_sample"

MEMORY_TITLES = {
    "peak_memory_reserved_bytes": "peak memory, reserved",
    "peak_memory_allocated_bytes": "peak memory, allocated",
    "device_memory_used_bytes": "device memory after the window",
    "host_pss_bytes": "host memory after the window",
}
"""What each memory metric is called; not all are peaks."""


@cache
def readings() -> dict[str, tuple[str, ...]]:
    """Return what a row expands to where there is a value: titles, and estimates or metrics, best first.

    `absent_metrics` reports those that no setting has.
    """
    titled = {name: meaning.title for name, meaning in metrics().items() if meaning.title is not None}
    of_task = {name for feature in registry.features() if feature.tasks for name in _metrics_of(feature)}
    others = {name for feature in registry.features() if not feature.tasks for name in _metrics_of(feature)} - of_task
    return {
        "Time to target": ("time_to_target", "time_to_target_seconds"),
        **{title: (name,) for name, title in titled.items() if name not in others},
        "Memory": MEMORY_METRICS,
        "Energy": (ENERGY, "energy_joules"),
        **{title: (name,) for name, title in titled.items() if name in others},
        "Cost of 1M samples": ("usd_per_million_samples",),
        "Cost of an epoch": ("usd_per_epoch",),
        "Cost of a result": ("usd_per_result",),
        "MFU": ("mfu",),
    }


def _metrics_of(feature: Feature) -> Mapping[str, Meaning]:
    return {} if feature.metrics is None else registry.load(feature.metrics)


def cells_table(findings: Findings) -> ReportTable:
    """Return every measured setting, fastest first; those that missed their target come last."""
    measured = sorted(
        (cell for cell in findings.cells if cell.measured),
        key=lambda cell: -cell.rate.value if cell.rate else 0.0,
    )
    quality = fmt.capitalized((findings.quality_metric or "quality").removeprefix("val_"))
    rate, ratio = fmt.rate_title(findings.rate_metric), fmt.ratio_title(findings.rate_metric)
    titles = ("Setting", rate.capitalize(), ratio.capitalize(), "Verdict", quality, "Doubts")
    scopes = _common_scopes(measured)
    known = {title for title, names in readings().items() if any(_has_value(cell, names) for cell in measured)}
    caption = (
        f"Measured settings, {'the largest' if findings.rate_metric in SIZES else 'fastest'} first; each row expands "
        f"to its other readings. Intervals are in brackets; those of the {ratio}s hold together at "
        f"{fmt.share(findings.confidence)} confidence. Rates, times to a target, energy and costs are geometric means "
        "over the repeats. Quality is the mean; memory and the other readings are medians."
    )
    return ReportTable(
        name="cells",
        title="Settings",
        caption=" ".join([caption, *(f"{title}: {scope}." for title, scope in scopes.items())]),
        columns=tuple(Column(title, title not in ("Setting", "Verdict", "Doubts")) for title in titles),
        rows=tuple(_row(findings, cell) for cell in measured),
        data=[_csv_row(cell) for cell in findings.cells],
        empty="No setting was measured.",
        details=tuple(tuple(_details(cell, scopes, known)) for cell in measured),
    )


def _row(findings: Findings, cell: CellFinding) -> tuple[Entry, ...]:
    repeats = "" if cell.measured == cell.planned else f"{cell.measured} of {cell.planned} repeats"
    doubts = "; ".join(doubt_in_words(doubt) for doubt in cell.doubts)
    return (
        Entry(cell.label, repeats, tone="baseline" if cell.cell == findings.baseline else ""),
        _estimate_entry(cell.rate),
        _speedup(cell),
        Entry(cell.verdict.value, tone=cell.verdict.value),
        _quality(cell),
        Entry(doubts or "none", tone="doubt" if cell.doubts else "absent"),
    )


def _speedup(cell: CellFinding) -> Entry:
    if cell.ratio is not None:
        return Entry(*_split_interval(fmt.ratio_text(cell.ratio)), order=cell.ratio.value)
    if cell.verdict is Verdict.baseline:
        return Entry("1x", "by definition", order=1.0)
    return Entry(cell.verdict.value, tone="absent")


def _quality(cell: CellFinding) -> Entry:
    if cell.quality is None:
        return Entry(fmt.ABSENT, cell.quality_verdict, tone="absent")
    entry = _estimate_entry(cell.quality.model_copy(update={"unit": ""}))  # the heading names the metric
    return replace(entry, detail=f"{entry.detail} {quality_words(cell)}")


def quality_words(cell: CellFinding) -> str:
    """Return the verdict on quality without the word `quality`, which is in the heading."""
    return cell.quality_verdict.removeprefix("quality: ")


def _estimate_entry(value: Estimate | None) -> Entry:
    if value is None:
        return Entry(fmt.ABSENT, tone="absent")
    return Entry(*_split_interval(fmt.estimate_text(value)), order=value.value)


def _split_interval(text: str) -> tuple[str, str]:
    """Split `2.1x [2.0, 2.2]` into value and interval. The reason for a missing interval is in the row's details."""
    value, bracket, interval = text.partition(" [")
    if bracket:
        return value, f"[{interval}"
    value, bracket, _ = text.partition(" (no interval")
    return value, "no interval" if bracket else ""


def metric_entry(cell: CellFinding, names: Sequence[str]) -> Entry:
    """Return the first of the named estimates and metrics that the setting has, or the reason for having none."""
    if "time_to_target" in names and cell.time_to_target is not None:
        return _estimate_entry(cell.time_to_target)
    for name in names:
        if (cost := cost_of(cell, name)) is not None:
            entry = _estimate_entry(cost)
            scope = cell.metrics["energy_joules"].scope if name == ENERGY and "energy_joules" in cell.metrics else None
            return replace(entry, detail=" ".join(filter(None, (entry.detail, scope))))
    known = [cell.metrics[name] for name in names if name in cell.metrics]
    best = next((summary for summary in known if summary.median is not None), None)
    if best is None:
        return Entry(fmt.ABSENT, (known[0].reason or "") if known else "", tone="absent")
    return Entry(fmt.summary(best), best.scope or "", order=best.median)


def _has_value(cell: CellFinding, names: Sequence[str]) -> bool:
    return metric_entry(cell, names).order is not None


def cost_of(cell: CellFinding, name: str) -> Estimate | None:
    """Return one of a setting's costs or None; the unit of energy says that it is per sample."""
    cost = cell.costs.get(name)
    return cost.model_copy(update={"unit": "J/sample"}) if cost is not None and name == ENERGY else cost


def _common_scopes(cells: Sequence[CellFinding]) -> dict[str, str]:
    """Return, by the reading's title, what it covers, where that is the same for all settings."""
    common = {}
    for title, names in readings().items():
        scopes = {_scope(cell, names) for cell in cells if _has_value(cell, names)}
        if len(cells) > 1 and len(scopes) == 1 and (scope := scopes.pop()):
            common[title] = scope
    return common


def _scope(cell: CellFinding, names: Sequence[str]) -> str:
    known = (cell.metrics[name] for name in names if name in cell.metrics)
    return next((summary.scope or "" for summary in known if summary.median is not None), "")


def _details(cell: CellFinding, common_scopes: Collection[str], known: Collection[str]) -> Iterator[Detail]:
    """Yield the readings of a setting, its bottleneck, reasons and doubts, and what to type.

    `common_scopes` names the readings whose scope is in the caption, `known` those that any setting has.
    """
    for title, names in readings().items():
        entry = metric_entry(cell, names)
        if entry.order is None:
            if entry.detail and title in known:
                yield Detail(title, f"{entry.text}: {entry.detail}")
            continue
        detail = entry.detail.removesuffix(_scope(cell, names)).strip() if title in common_scopes else entry.detail
        text = fmt.share(entry.order) if title == "MFU" else entry.text
        yield Detail(title, ", ".join(filter(None, (text, detail, cell.memory_words if title == "Memory" else ""))))
    if cell.bottleneck is not None:
        yield Detail("Bottleneck", f"{cell.bottleneck.verdict}: {cell.bottleneck.evidence}")
    if cell.verdict is Verdict.baseline:
        yield Detail("Verdict", "this is the baseline, which the others are compared with")
    else:
        yield Detail("Verdict", f"{cell.verdict.value}: {cell.verdict_reason}")
    if cell.rate is not None and cell.rate.low is None and cell.rate.reason:
        yield Detail("No interval", cell.rate.reason)
    if cell.quality_difference is not None:
        difference = cell.quality_difference.model_copy(update={"unit": ""})
        yield Detail("Quality against the baseline", fmt.estimate_text(difference))
    yield from (Detail("Not measured", reason) for reason in cell.reasons)
    for doubt in cell.doubts:
        text = f"{doubt_in_words(doubt)} ({doubt.code}): {doubt.message.rstrip('.')}. {fmt.sentence(doubt.remedy)}"
        yield Detail("Doubt", text)
    yield Detail("Repeats", f"{cell.measured} of {cell.planned} measured; the setting is {cell.cell} in files")
    if cell.again:
        yield Detail("Measure it again", cell.again, code=True)
    if cell.trainer:
        yield Detail("Trainer", cell.trainer, code=True)


def absent_metrics(findings: Findings) -> list[str]:
    """Return one line for each reading that no setting has, with the measurement's reason, then the notes on costs."""
    lines = []
    for title, names in readings().items():
        if any(_has_value(cell, names) for cell in findings.cells):
            continue
        reasons = [cell.metrics[name].reason for cell in findings.cells for name in names if name in cell.metrics]
        if reason := next(filter(None, reasons), None):
            lines.append(f"{title}: {fmt.absent(reason)}.")
    return lines + cost_notes(findings)


def cost_notes(findings: Findings) -> list[str]:
    """Return the prices behind the costs with dates and sources, and the reasons for missing costs."""
    if findings.costs_note:
        return [f"Cost: {findings.costs_note.rstrip('.')}."]
    notes = []
    for price in findings.prices:
        origin = ", ".join(filter(None, (price.source, price.date))) or "your own figure, without a source"
        notes.append(f"Priced with {price.name} at {price.value:g} {price.unit} ({origin}).")
    return notes + list(findings.cost_gaps)


def _csv_row(cell: CellFinding) -> dict[str, Any]:
    row: dict[str, Any] = {"cell": cell.cell, "label": cell.label}
    row |= {f"axis.{key}": value for key, value in cell.axes.items()}
    row |= {"hardware": cell.hardware, "planned": cell.planned, "measured": cell.measured}
    row |= _estimate_columns("rate", cell.rate)
    row |= _estimate_columns("speedup", cell.ratio)
    row |= {"speedup.paired": cell.speedup.paired if cell.speedup else None}
    row |= {"verdict": cell.verdict.value, "verdict_reason": cell.verdict_reason}
    row |= _estimate_columns("time_to_target", cell.time_to_target)
    row |= _estimate_columns("quality", cell.quality)
    row |= _estimate_columns("quality_difference", cell.quality_difference)
    for name in sorted(cell.costs):
        row |= _estimate_columns(name, cost_of(cell, name))
    row |= {"quality_verdict": cell.quality_verdict}
    row |= {"bottleneck": cell.bottleneck.verdict if cell.bottleneck else None}
    for name, summary in sorted(cell.metrics.items()):
        for field in ("median", "minimum", "maximum", "unit", "reason"):
            row[f"{name}.{field}"] = getattr(summary, field)
    effective = {} if cell.effective is None else to_jsonable_python(cell.effective)
    row |= {f"effective.{key}": value for key, value in sorted(effective.items())}
    return row | {"doubts": "; ".join(doubt.code for doubt in cell.doubts), "reasons": "; ".join(cell.reasons)}


def _estimate_columns(name: str, value: Estimate | None) -> dict[str, Any]:
    fields = ("value", "low", "high", "unit", "confidence", "count", "reason")
    return {f"{name}.{field}": getattr(value, field, None) for field in fields}
