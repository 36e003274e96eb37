"""The table of measured cells: rate, speed-up, verdict, memory, energy, cost, quality and doubts, with intervals."""

from __future__ import annotations

from typing import Any

from accelsweep.core.cells.tasks import SIZES
from accelsweep.core.findings.findings import Findings
from accelsweep.core.findings.measured import CellFinding
from accelsweep.core.findings.numbers import Estimate, Verdict
from accelsweep.core.recorded.doubt_words import in_words
from accelsweep.report import format as fmt
from accelsweep.report.table import Column, Entry, ReportTable
from accelsweep.report.tables.more import common_scopes, known_readings, more_of
from accelsweep.report.tables.readings import cost_of, estimate, quality_words, split


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
    doubts = "; ".join(in_words(doubt) for doubt in cell.doubts)
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
