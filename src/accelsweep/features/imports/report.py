"""`accelsweep import FILE --from SOURCE`: results that others publish, as rows of this folder with their source."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from accelsweep.analysis.analyse_sweep import Analysis
from accelsweep.analysis.run_results import RunRow
from accelsweep.driver.console import say
from accelsweep.errors import InputError
from accelsweep.features.imports.model import ExternalResults, ImportedRows, RowBeside
from accelsweep.features.imports.readers import all_kept, external_file, read_published
from accelsweep.records.findings import Findings
from accelsweep.records.layout import check_sweep_name
from accelsweep.report import units as fmt
from accelsweep.report.table_model import Column, Entry, ReportTable
from accelsweep.significant_digits import count_of


def import_rows(home: Path, path: Path, source: str, device: str | None, name: str | None) -> ExternalResults:
    """Read a file of `source`, write its rows to `external/NAME.json` in `home`, and return them.

    `name` is by default that of the source and the file. Raises InputError, before anything is written, for a damaged
    or a foreign file, and where other rows have this name.
    """
    found = read_published(path, source, device)
    place = external_file(home, check_sweep_name(name or f"{source}-{_plain_name(path.stem)}"))
    if place.exists() and ExternalResults.read(place) != found:
        raise InputError(f"{place} is there already, with other rows: remove it, or take another name with --name")
    place.parent.mkdir(exist_ok=True)
    found.write(place)
    models = len({row.model for row in found.rows})
    devices = sorted({row.device for row in found.rows})
    named = ", ".join(devices[:4]) + (", ..." if len(devices) > 4 else "")
    say(f"{place}: {count_of(len(found.rows), 'row')} of {count_of(models, 'model')} by {source}, on {named}")
    say(f"a claim shows a row beside its value with `published: {{WORDS: {{rows: {place.stem}, model: MODEL}}}}`")
    return found


def _plain_name(stem: str) -> str:
    """Return a file's stem in the letters that a name may have."""
    return re.sub(r"[^A-Za-z0-9._-]+", "-", stem).strip("-.")


# Imported rows beside merged sweeps: those of the same model and task. Nothing is computed from them.

TASK_WORDS = {"train_throughput": "training", "time_to_accuracy": "training", "inference": "inference"}
"""The word of external rows for each of our tasks."""


def rows_beside(runs: Iterable[RunRow], imported: Sequence[ExternalResults]) -> tuple[RowBeside, ...]:
    """Return the imported rows whose model is called like one of these runs' and whose task is theirs.

    Case and signs do not count: `ResNet50` is called like `resnet50`. Rows are in the order of model, device and value.
    """
    configs = [run.config for run in runs if run.config is not None]
    wanted = {(_plain(one.model_target.rpartition(".")[2]), TASK_WORDS.get(one.task)) for one in configs}
    found = [
        RowBeside(source=one.source, file=one.file, row=row)
        for one in imported
        for row in one.rows
        if (_plain(row.model), row.task) in wanted
    ]
    return tuple(sorted(found, key=lambda one: (one.row.model, one.row.device, one.row.value)))


def _plain(name: str) -> str:
    return re.sub(r"[^a-z0-9]", "", name.lower())


# Rows that others published, beside merged sweeps: labelled with their source, with neither interval nor verdict.


def build_section(analysis: Analysis) -> ImportedRows | None:
    """Return the imported rows beside several merged sweeps; None for one sweep, and where there are none."""
    if analysis.folder is not None or analysis.home is None:
        return None
    rows = rows_beside(analysis.rows, all_kept(analysis.home))
    return ImportedRows(rows=rows) if rows else None


def rows_of(findings: Findings) -> tuple[RowBeside, ...]:
    """Return the imported rows beside these findings."""
    imported = findings.section(ImportedRows)
    return () if imported is None else imported.rows


def tables(findings: Findings) -> list[ReportTable]:
    """Return the table of the imported rows, where there are some."""
    return [external_table(findings)] if rows_of(findings) else []


def external_table(findings: Findings) -> ReportTable:
    """Return one row for each imported row of the sweeps' models."""
    titles = ("Published by", "Model", "Device", "Published value", "Circumstances")
    return ReportTable(
        name="external",
        title="Measured by others",
        caption="Rows that were imported, of the same models. Others measured them, with other software and other "
        "data. They are in none of our intervals, verdicts or figures.",
        columns=tuple(Column(title, title == "Published value") for title in titles),
        rows=tuple(_row(one) for one in rows_of(findings)),
        data=[_data(one) for one in rows_of(findings)],
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
