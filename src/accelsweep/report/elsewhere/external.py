"""Rows that others published, beside merged sweeps: labelled with their source, with neither interval nor verdict."""

from __future__ import annotations

from typing import Any

from accelsweep.core.recorded.external import RowBeside
from accelsweep.records.findings import Findings
from accelsweep.report import units as fmt
from accelsweep.report.table_model import Column, Entry, ReportTable


def external_table(findings: Findings) -> ReportTable:
    """Return one row for each imported row of the sweeps' models."""
    titles = ("Published by", "Model", "Device", "Published value", "Circumstances")
    return ReportTable(
        name="external",
        title="Measured by others",
        caption="Rows that were imported, of the same models. Others measured them, with other software and other "
        "data. They are in none of our intervals, verdicts or figures.",
        columns=tuple(Column(title, title == "Published value") for title in titles),
        rows=tuple(_row(one) for one in findings.external),
        data=[_data(one) for one in findings.external],
        empty="No imported row is of these models.",
    )


def _row(one: RowBeside) -> tuple[Entry, ...]:
    row = one.row
    return (
        Entry(one.source, one.file),
        Entry(row.model, row.task),
        Entry(f"{row.devices} x {row.device}" if row.devices else row.device),
        Entry(f"{row.value:,.6g} {fmt.unit_word(row.unit)}", tone="projected", order=row.value),
        Entry(row.circumstances),
    )


def _data(one: RowBeside) -> dict[str, Any]:
    plain = one.row.model_dump(mode="json", exclude={"conditions", "value", "unit"})
    value = {"published_value": one.row.value, "published_unit": one.row.unit}
    return {"source": one.source, "file": one.file, **plain, **value, "circumstances": one.row.circumstances}
