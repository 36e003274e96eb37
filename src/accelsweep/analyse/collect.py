"""Collect: every run that the plan wants becomes one row of one table, measured or not. The step that may read records.

A record that is truncated, altered or not where it belongs is set aside and its run becomes a `not_run` row that says
so. The same records give the same bytes: columns and rows have a fixed order, the file carries no library's metadata.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Iterable, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from accelsweep.core.documents import canonical_json, set_aside, sha256_file, write_bytes_atomically
from accelsweep.core.errors import DamagedFile
from accelsweep.core.outcome import Outcome
from accelsweep.core.plans import Block, Manifest, PlannedCell, Run
from accelsweep.core.record import Record
from accelsweep.core.secrets import without_secrets
from accelsweep.state.folders import SweepFolder
from accelsweep.state.records import read_record, read_record_at

TEXT, WHOLE, REAL = pa.string(), pa.int64(), pa.float64()

COLUMNS = {
    **dict.fromkeys(("sweep", "cell", "run", "block"), TEXT),
    **dict.fromkeys(("repeat", "position", "attempt", "seed"), WHOLE),
    **dict.fromkeys(("outcome", "reason", "started_at", "finished_at"), TEXT),
    "wall_seconds": REAL,
    **dict.fromkeys(("config", "effective", "metrics", "hardware", "software", "builds", "sources"), TEXT),
    **dict.fromkeys(("environment", "git", "doubts", "record_sha256"), TEXT),
}
"""The columns of every table; those from `config` on hold JSON, except the last. `axis.KEY` and metrics follow."""


def collect(folder: SweepFolder) -> pd.DataFrame:
    """Return one row per wanted run and per unsupported cell of the sweep, and write them to `records.parquet`.

    Times are UTC in ISO 8601; `axis.KEY` holds JSON where the axis mixes types; each metric has a float column of its
    own (null where it was not measured; the reason stands in `metrics`). Rows are in block order, unsupported last.
    The plan says where a cell lies on the axes, so that an axis which was added later has values for earlier runs too.
    """
    manifest = Manifest.read(folder.manifest)
    axes = {cell.name: {"axes": cell.axes} for cell in manifest.cells}
    configs = cache(lambda block: _configs(folder.block(block)))
    rows = [
        {**_run_row(folder, block.name, run, configs), **axes.get(Run.parse(run).cell, {})}
        for block in manifest.blocks
        for run in block.runs
    ]
    rows += [_unsupported_row(manifest.sweep, cell) for cell in manifest.cells if cell.unsupported is not None]
    table = table_of(rows, manifest.axes)
    buffer = io.BytesIO()
    pq.write_table(table, buffer, compression="zstd")
    if not folder.records.exists() or folder.records.read_bytes() != buffer.getvalue():
        write_bytes_atomically(folder.records, buffer.getvalue())
    return _frame(table)


def read_records(path: Path) -> pd.DataFrame:
    """Return the table that `collect` wrote to `path`, with whole numbers as whole numbers even where some are null."""
    return _frame(pq.read_table(path))


def table_of(rows: Iterable[Mapping[str, Any]], axes: Iterable[str]) -> pa.Table:
    """Return rows (a dictionary each; `axes` and `values` hold what becomes columns of their own) as an arrow table."""
    rows = list(rows)
    columns = {name: _column([row.get(name) for row in rows], kind) for name, kind in COLUMNS.items()}
    for axis in axes:
        columns[f"axis.{axis}"] = _axis_column([row["axes"].get(axis) for row in rows])
    for metric in sorted({name for row in rows for name in row["values"]} - set(columns)):
        columns[metric] = pa.array([row["values"].get(metric) for row in rows], REAL)
    return pa.table(columns)


def _frame(table: pa.Table) -> pd.DataFrame:
    frame: pd.DataFrame = table.to_pandas(types_mapper={WHOLE: pd.Int64Dtype()}.get, ignore_metadata=True)
    return frame


def _column(values: list[Any], kind: pa.DataType) -> pa.Array:
    """Return a column; half a surrogate pair in a text (arrow holds UTF-8 only) becomes its JSON escape."""
    if kind == TEXT:
        values = [None if text is None else text.encode("utf-8", "backslashreplace").decode() for text in values]
    return pa.array(values, kind)


def _axis_column(values: list[Any]) -> pa.Array:
    kinds = {type(value) for value in values}
    for kind, arrow in ((str, TEXT), (bool, pa.bool_()), (float, REAL), (int, WHOLE)):
        if kinds == {kind} and not (kind is int and any(abs(value) >= 2**63 for value in values)):
            return _column(values, arrow)
    return _column([canonical_json(value) for value in values], TEXT)


def _run_row(folder: SweepFolder, block: str, run: str, configs: Callable[[str], Mapping[str, Any]]) -> dict[str, Any]:
    """Return the row of a run; `configs` gives those of a block, for a run that left no record."""
    try:
        record = read_record(folder, run)
    except FileNotFoundError:
        record = None
    except DamagedFile:
        set_aside(folder.record(run))
        record = None
    if record is not None:
        return {**_record_row(record), "record_sha256": sha256_file(folder.record(run))}
    cell, repeat = Run.parse(run)
    return {
        "sweep": folder.name,
        "cell": cell,
        "run": run,
        "block": block,
        "repeat": repeat,
        "outcome": Outcome.not_run,
        "reason": _why_absent(folder, run),
        "config": configs(block).get(cell),
        "axes": {},
        "values": {},
    }


def _configs(block: Path) -> dict[str, str]:
    """Return the config of each cell of a block as JSON, as records hold it; {} for a file that is lost or damaged."""
    try:
        configs = Block.read(block).configs
    except (FileNotFoundError, DamagedFile):
        return {}
    return {cell: canonical_json(without_secrets(config.raw)) for cell, config in configs.items()}


def _why_absent(folder: SweepFolder, run: str) -> str:
    damaged = sorted(folder.run(run).glob("record.json.damaged-*"))
    if not damaged:
        return "it has not run yet; the same command measures it"
    try:
        read_record_at(damaged[-1], run)
        why = "by hand: it can be read"
    except DamagedFile as error:
        why = error.why
    return f"its record was set aside as {damaged[-1].name} ({why}); the same command measures it again"


def _record_row(record: Record) -> dict[str, Any]:
    plain = record.model_dump(mode="json")
    texts = ("config", "effective", "metrics", "environment", "git", "doubts")
    return {
        **{name: plain[name] for name in COLUMNS if name in plain},
        **{name: canonical_json(plain[name]) for name in texts if plain[name] is not None},
        **{name: canonical_json(part) for name, part in plain["fingerprint"].items()},
        "axes": plain["axes"],
        "values": {name: metric["value"] for name, metric in plain["metrics"].items()},
    }


def _unsupported_row(sweep: str, cell: PlannedCell) -> dict[str, Any]:
    return {
        "sweep": sweep,
        "cell": cell.name,
        "outcome": Outcome.unsupported,
        "reason": cell.unsupported,
        "axes": cell.axes,
        "values": {},
    }
