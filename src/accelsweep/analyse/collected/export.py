"""records.parquet: the runs as one table for other programs. No code of ours reads it.

The same runs give the same bytes: columns and rows have a fixed order, the file carries no library's metadata.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from accelsweep.analyse.collected.runs import RunRow
from accelsweep.base.documents import canonical_json, clear_place, write_bytes_atomically

TEXT, WHOLE, REAL = pa.string(), pa.int64(), pa.float64()

_PLAIN = {
    **dict.fromkeys(("sweep", "cell", "run", "block"), TEXT),
    **dict.fromkeys(("repeat", "position", "attempt", "seed"), WHOLE),
    **dict.fromkeys(("outcome", "reason", "started_at", "finished_at"), TEXT),
    "wall_seconds": REAL,
}
"""Columns that hold the value of the row's field of the same name."""

_JSON: dict[str, Callable[[RunRow], Any]] = {
    "config": lambda run: None if run.config is None else run.config.raw,
    "effective": lambda run: None if run.effective is None else run.effective.model_dump(mode="json"),
    "metrics": lambda run: {name: reading._asdict() for name, reading in run.metrics.items()},
    "hardware": lambda run: run.hardware.details,
    "software": lambda run: run.software,
    "builds": lambda run: run.builds,
    "sources": lambda run: run.sources,
    "environment": lambda run: run.environment,
    "git": lambda run: run.git,
    "doubts": lambda run: [doubt.model_dump(mode="json") for doubt in run.doubts],
}
"""Columns that hold JSON; all but the first are null where there is no record."""


def write_table(path: Path, runs: Sequence[RunRow], axes: Iterable[str]) -> None:
    """Write the table of these runs to `path`, unless the same table is there already."""
    buffer = io.BytesIO()
    pq.write_table(table_of(runs, axes), buffer, compression="zstd")
    clear_place(path)
    if not path.exists() or path.read_bytes() != buffer.getvalue():
        write_bytes_atomically(path, buffer.getvalue())


def table_of(runs: Sequence[RunRow], axes: Iterable[str]) -> pa.Table:
    """Return the runs as an arrow table, in their order.

    Times are UTC in ISO 8601; columns from `config` on hold JSON, except the last of them. Then comes `axis.KEY` for
    each axis, as JSON where the axis mixes types. Then comes a float column for each metric, null where it was not
    measured; the reason stands in `metrics`.
    """
    columns = {name: _column([getattr(run, name) for run in runs], kind) for name, kind in _PLAIN.items()}
    for name, part in _JSON.items():
        columns[name] = _column(_texts([part(run) if run.recorded or name == "config" else None for run in runs]), TEXT)
    columns["record_sha256"] = _column([run.record_sha256 for run in runs], TEXT)
    for axis in axes:
        columns[f"axis.{axis}"] = _axis_column([run.axes.get(axis) for run in runs])
    for metric in sorted({name for run in runs for name in run.metrics} - set(columns)):
        values = [run.metrics[metric].value if metric in run.metrics else None for run in runs]
        columns[metric] = pa.array(values, REAL)
    return pa.table(columns)


def in_utf8(text: str) -> str:
    """Return `text` with half a surrogate pair, which UTF-8 cannot hold, as its JSON escape."""
    return text if text.isascii() else text.encode("utf-8", "backslashreplace").decode()


def _texts(parts: list[Any]) -> list[str | None]:
    """Return the JSON of each part. A part that many runs share, which `collect` keeps once, is put into JSON once."""
    known = {id(part): part for part in parts if part is not None}
    texts = {key: canonical_json(part) for key, part in known.items()}
    return [None if part is None else texts[id(part)] for part in parts]


def _column(values: list[Any], kind: pa.DataType) -> pa.Array:
    if kind == TEXT:
        values = [None if text is None else in_utf8(text) for text in values]
    return pa.array(values, kind)


def _axis_column(values: list[Any]) -> pa.Array:
    kinds = {type(value) for value in values}
    for kind, arrow in ((str, TEXT), (bool, pa.bool_()), (float, REAL), (int, WHOLE)):
        if kinds == {kind} and not (kind is int and any(abs(value) >= 2**63 for value in values)):
            return _column(values, arrow)
    return _column([canonical_json(value) for value in values], TEXT)
