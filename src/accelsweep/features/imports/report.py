"""`accelsweep import`, and the table of imported rows of the same models in reports on several merged sweeps."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from accelsweep.analysis.analyse_sweep import Analysis
from accelsweep.analysis.run_results import RunRow
from accelsweep.errors import InputError
from accelsweep.features.imports.model import ExternalResults, ImportedRows, SourcedRow
from accelsweep.features.imports.readers import external_file, read_all_external, read_published
from accelsweep.records.findings import Findings
from accelsweep.records.layout import check_sweep_name
from accelsweep.report import formatting as fmt
from accelsweep.report.table_model import Column, Entry, ReportTable
from accelsweep.significant_digits import count_of


def import_rows(home: Path, path: Path, source: str, device: str | None, name: str | None) -> ExternalResults:
    """Write the rows of a file published by `source` to `external/NAME.json` in `home`, and return them.

    `name` defaults to source and file. Raises InputError, before anything is written, if the file is damaged or in
    another format, or if different rows are already stored under this name.
    """
    from accelsweep.driver.console import say  # imports rich, which reports do not need

    results = read_published(path, source, device)
    plain_stem = re.sub(r"[^A-Za-z0-9._-]+", "-", path.stem).strip("-.")
    target = external_file(home, check_sweep_name(name or f"{source}-{plain_stem}"))
    if target.exists() and ExternalResults.read(target) != results:
        raise InputError(f"{target} already exists with different rows: remove it, or choose another name with --name")
    target.parent.mkdir(exist_ok=True)
    results.write(target)
    models, devices = len({row.model for row in results.rows}), sorted({row.device for row in results.rows})
    names = ", ".join(devices[:4]) + (", ..." if len(devices) > 4 else "")
    say(f"{target}: {count_of(len(results.rows), 'row')} of {count_of(models, 'model')} from {source}, on {names}")
    say(f"to show a row next to a claim's value: `published: {{LABEL: {{rows: {target.stem}, model: MODEL}}}}`")
    return results


EXTERNAL_TASKS = {"train_throughput": "training", "time_to_accuracy": "training", "inference": "inference"}
"""Our task -> the corresponding task in external rows."""


def matching_rows(runs: Iterable[RunRow], imported: Sequence[ExternalResults]) -> tuple[SourcedRow, ...]:
    """Return the imported rows with the model and task of any of these runs, sorted by model, device and value.

    Case and punctuation are ignored: `ResNet50` matches `resnet50`.
    """
    configs = [run.config for run in runs if run.config is not None]
    wanted = {(_plain(config.model_target.rpartition(".")[2]), EXTERNAL_TASKS.get(config.task)) for config in configs}
    rows = [
        SourcedRow(source=results.source, file=results.file, row=row)
        for results in imported
        for row in results.rows
        if (_plain(row.model), row.task) in wanted
    ]
    return tuple(sorted(rows, key=lambda sourced: (sourced.row.model, sourced.row.device, sourced.row.value)))


def _plain(name: str) -> str:
    return re.sub(r"[^a-z0-9]", "", name.lower())


def build_section(analysis: Analysis) -> ImportedRows | None:
    """Return the imported rows that match several merged sweeps; None for a single sweep or if no rows match."""
    if analysis.folder is not None or analysis.home is None:
        return None
    rows = matching_rows(analysis.rows, read_all_external(analysis.home))
    return ImportedRows(rows=rows) if rows else None


def tables(findings: Findings) -> list[ReportTable]:
    """Return the table of imported rows, if there are any."""
    imported = findings.section(ImportedRows)
    if imported is None:
        return []
    titles = ("Published by", "Model", "Device", "Published value", "Circumstances")
    return [
        ReportTable(
            name="external",
            title="Measured by others",
            caption="Imported results for the same models, measured by others with other software and other data. "
            "They are not part of any of our intervals, verdicts or figures.",
            columns=tuple(Column(title, title == "Published value") for title in titles),
            rows=tuple(_row(sourced) for sourced in imported.rows),
            data=[_data(sourced) for sourced in imported.rows],
            empty="No imported row is about these models.",
        )
    ]


def _row(sourced: SourcedRow) -> tuple[Entry, ...]:
    row = sourced.row
    return (
        Entry(sourced.source, sourced.file),
        Entry(row.model, row.task),
        Entry(f"{row.devices} x {row.device}" if row.devices else row.device),
        Entry(f"{row.value:,.6g} {fmt.unit_word(row.unit)}", tone="secondhand", order=row.value),
        Entry(row.circumstances),
    )


def _data(sourced: SourcedRow) -> dict[str, Any]:
    row = sourced.row
    plain = row.model_dump(mode="json", exclude={"conditions", "value", "unit"})
    value = {"published_value": row.value, "published_unit": row.unit}
    return {"source": sourced.source, "file": sourced.file, **plain, **value, "circumstances": row.circumstances}
