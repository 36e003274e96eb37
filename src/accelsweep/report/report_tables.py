"""The tables beside the cells: failed and excluded settings, doubts, runs, environment."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from accelsweep import registry
from accelsweep.records.estimates import Estimate
from accelsweep.records.findings import CellFinding, DeviceCount, Findings, LawForm, RunPoint, ScalingLaw
from accelsweep.records.run_record import Doubt, Outcome
from accelsweep.report import units as fmt
from accelsweep.report.setting_table import cells_table
from accelsweep.report.table_model import Column, Entry, ReportTable
from accelsweep.significant_digits import interval_digits, significant

# The scaling laws as a table: contention and coherency of each series, and where adding devices stops to pay.

_TONES = {LawForm.universal: "slower", LawForm.amdahl: "slower", LawForm.ideal: "same", LawForm.beyond: "faster"}


def laws_table(findings: Findings) -> ReportTable:
    """Return one row per scaling series that was measured on four numbers of devices or more."""
    titles = ("Series", "Devices", "Law", "Contention", "Coherency", "A further device pays up to", "Rate falls beyond")
    return ReportTable(
        name="scaling_law",
        title="Scaling law",
        caption="Gunther's universal scalability law, fitted to each series. Contention is the share of the work that "
        "cannot be divided. Coherency is what each pair of devices costs; without it the law is Amdahl's. A further "
        "device pays while it adds at least half of what one alone does. Intervals stand in brackets and hold together "
        f"at {fmt.share(findings.confidence)}. What lies beyond the measured devices is the law's, and nobody measured "
        "it.",
        columns=tuple(Column(title, title not in ("Series", "Devices", "Law")) for title in titles),
        rows=tuple(_row(law) for law in findings.laws),
        data=[_data(law) for law in findings.laws],
        empty="No series was measured on four numbers of devices.",
    )


def _row(law: ScalingLaw) -> tuple[Entry, ...]:
    off = f"off by {fmt.share(law.misfit)} at most"
    return (
        Entry(law.series, f"{law.kind} scaling"),
        Entry(", ".join(map(str, law.devices))),
        Entry(law.form.value, law.reason or off, tone=_TONES.get(law.form, law.form.value)),
        Entry(_number(law.contention), order=law.contention.value),
        Entry(_number(law.coherency), order=law.coherency.value),
        _count(law.pays, "no end"),
        _count(law.peak, "never"),
    )


def _number(value: Estimate) -> str:
    """Return a number of the law with its interval, whose lower end may be 0."""
    if value.low is None or value.high is None:
        return f"{significant(value.value)} (no interval)"
    middle, low, high = interval_digits(value.value, value.low, value.high)
    return f"{middle} [{low}, {high}]"


def _count(found: DeviceCount | None, endless: str) -> Entry:
    if found is None:
        return Entry("-", tone="absent")
    value, low, high = (endless if end is None else f"{end:,}" for end in (found.value, found.low, found.high))
    return Entry(value if value == low == high else f"{value} [{low}, {high}]", order=found.value)


def _data(law: ScalingLaw) -> dict[str, Any]:
    data: dict[str, Any] = law.model_dump(mode="json", exclude={"contention", "coherency", "pays", "peak"})
    for name in ("contention", "coherency", "pays", "peak"):
        value = getattr(law, name)
        data |= {f"{name}.{field}": getattr(value, field, None) for field in ("value", "low", "high")}
    return data


def failures_table(findings: Findings) -> ReportTable:
    """Return every outcome but `measured`, one row per cell and outcome, and the combinations that a rule excluded."""
    rows: list[tuple[Entry, ...]] = []
    data: list[dict[str, Any]] = []
    for cell in findings.cells:
        for outcome, count in cell.outcomes.items():
            if outcome is Outcome.measured or not count:
                continue
            own = [point.reason for point in cell.runs if point.outcome is outcome and point.reason]
            reason = "; ".join(dict.fromkeys(own or cell.reasons)) or cell.verdict_reason
            words = fmt.outcome_words(outcome)
            amount = f"{count} of {cell.planned}" if cell.planned else "not planned"
            rows.append(
                (
                    Entry(cell.label, cell.cell),
                    Entry(words, tone="failed"),
                    Entry(amount),
                    Entry(reason),
                )
            )
            data.append({"cell": cell.cell, "label": cell.label, "outcome": words, "runs": count, "reason": reason})
    for excluded in findings.excluded:
        name, reason = _axes_words(excluded.axes), excluded.because
        rows.append((Entry(name), Entry("excluded", tone="failed"), Entry("not planned"), Entry(reason)))
        data.append({"cell": "", "label": name, "outcome": "excluded", "runs": 0, "reason": reason})
    return ReportTable(
        name="unmeasured",
        title="Not measured",
        caption="Unsupported, failed, excluded and not-run settings, with the reason of each.",
        columns=(Column("Setting"), Column("Outcome"), Column("Runs"), Column("Reason")),
        rows=tuple(rows),
        data=data,
        empty="Every planned run was measured.",
    )


def _axes_words(axes: Mapping[str, Any]) -> str:
    return ", ".join(f"{key}={value}" for key, value in axes.items()) or "the only setting"


def doubts_table(findings: Findings) -> ReportTable:
    """Return every doubt with the cells that it weakens and its remedy."""
    where: dict[Doubt, list[str]] = {doubt: [] for doubt in findings.doubts}
    for cell in findings.cells:
        for doubt in cell.doubts:
            where.setdefault(doubt, []).append(cell.label)
    rows = [
        (
            Entry(doubt.code, tone="doubt", code=True),
            Entry(doubt.message),
            Entry(_where(labels)),
            Entry(doubt.remedy),
        )
        for doubt, labels in where.items()
    ]
    data = [{**doubt.model_dump(), "cells": "; ".join(labels)} for doubt, labels in where.items()]
    return ReportTable(
        name="doubts",
        title="Doubts",
        caption="Reasons to distrust a number, found by accelsweep. They stand beside the number wherever it is shown.",
        columns=(Column("Doubt"), Column("Evidence"), Column("Where"), Column("Remedy")),
        rows=tuple(rows),
        data=data,
        empty="No doubt was found.",
    )


def _where(labels: Sequence[str]) -> str:
    if not labels:
        return "the whole sweep"
    return "; ".join(labels) if len(labels) <= 3 else f"{'; '.join(labels[:2])} and {len(labels) - 2} more settings"


def runs_table(findings: Findings) -> ReportTable:
    """Return the runs behind the numbers, in grid order."""
    runs = [(cell, point) for cell in findings.cells for point in cell.runs]
    caption = f"Each run's record is sweeps/{findings.sweep}/runs/RUN/record.json."
    if findings.merged:
        caption = "Each run is named SWEEP/RUN; its record is sweeps/SWEEP/runs/RUN/record.json."
    titles = ("Run", "Setting", "Block", "Outcome", "Rate", "Quality", "Doubts")
    return ReportTable(
        name="runs",
        title="Runs",
        caption=caption,
        columns=tuple(Column(title, title in ("Rate", "Quality")) for title in titles),
        rows=tuple(_run_row(cell, point, findings.rate_unit) for cell, point in runs),
        data=[_run_data(cell, point.model_dump(mode="json")) for cell, point in runs],
        empty="No run was planned.",
    )


def _run_row(cell: CellFinding, point: RunPoint, rate_unit: str) -> tuple[Entry, ...]:
    tone = "" if point.outcome is Outcome.measured else "failed"
    rate = point.rate
    return (
        Entry(point.run, code=True),
        Entry(cell.label),
        Entry(point.block, code=True),
        Entry(fmt.outcome_words(point.outcome), point.reason or "", tone=tone),
        Entry(fmt.number(rate, rate_unit), order=rate, tone="absent" if rate is None else ""),
        _quality(point.quality),
        Entry(", ".join(doubt.code for doubt in point.doubts) or "none", tone="doubt" if point.doubts else "absent"),
    )


def _quality(value: float | None) -> Entry:
    return Entry(fmt.number(value), order=value, tone="absent" if value is None else "")


def _run_data(cell: CellFinding, point: dict[str, Any]) -> dict[str, Any]:
    doubts = "; ".join(doubt["code"] for doubt in point.pop("doubts"))
    return {"cell": cell.cell, "label": cell.label, **point, "doubts": doubts}


def environment_table(findings: Findings) -> ReportTable:
    """Return the machines and the software behind the numbers."""
    facts = [(hardware.name, key, value) for hardware in findings.hardware for key, value in hardware.details.items()]
    facts += [("software", key, value) for key, value in findings.environment.items()]
    return ReportTable(
        name="environment",
        title="Environment",
        caption="The machines and the software, as every run reported them.",
        columns=(Column("Group"), Column("Fact"), Column("Value")),
        rows=tuple((Entry(group), Entry(key), Entry(value)) for group, key, value in facts),
        data=[{"group": group, "fact": key, "value": value} for group, key, value in facts],
        empty="No run reported its environment.",
    )


def build_tables(findings: Findings) -> list[ReportTable]:
    """Return all tables in reading order; those of features only where they have something to show."""
    return [
        *_feature_tables(findings, "first"),
        cells_table(findings),
        *([laws_table(findings)] if findings.laws else []),
        *_feature_tables(findings, "results"),
        *(build(findings) for build in (failures_table, doubts_table, runs_table, environment_table)),
    ]


def _feature_tables(findings: Findings, place: str) -> Iterator[ReportTable]:
    for feature in registry.features():
        if feature.tables is not None and feature.tables.place == place:
            yield from registry.load(feature.tables.target)(findings)
