"""Collect every run that the plan wants, measured or not, as a typed row. This step reads the records.

A record that is truncated, altered or misplaced is set aside. Its run becomes a `not_run` row that says so.
`records.parquet` is written beside, for other programs.
"""

from __future__ import annotations

import io
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

import pyarrow as pa
import pyarrow.parquet as pq

from accelsweep import registry
from accelsweep.analysis.run_results import Reading, RunRow
from accelsweep.config.schema import CellConfig
from accelsweep.errors import DamagedFile
from accelsweep.files import set_aside, set_aside_non_file, sha256_file, write_bytes_atomically
from accelsweep.json_documents import canonical_json
from accelsweep.records.layout import SweepFolder
from accelsweep.records.plan import Block, Manifest, PlannedCell, Run
from accelsweep.records.run_files import block_or_none, read_record, read_record_at
from accelsweep.records.run_record import Effective, Metric, Outcome, Record, Traits
from accelsweep.records.stop_reasons import why_and_what_next
from accelsweep.redaction import without_secrets

# records.parquet: the runs as one table for other programs. No code of ours reads it.

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
    set_aside_non_file(path)
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


_Part = TypeVar("_Part", CellConfig, Effective, Traits, Mapping[str, Any])


class _Once:
    """Equal parts of many records, each kept once: thousands of runs share a config, and memory is limited."""

    def __init__(self) -> None:
        self._kept: dict[str, Any] = {}

    def __call__(self, part: _Part) -> _Part:
        """Return the first part that was equal to this one."""
        plain = part if isinstance(part, Mapping) else part.model_dump(mode="json")
        found: _Part = self._kept.setdefault(f"{type(part).__name__} {canonical_json(plain)}", part)
        return found


def collect(folder: SweepFolder) -> list[RunRow]:
    """Return the rows of `look_up`, after damaged records were set aside, and write `records.parquet`."""
    manifest = Manifest.read(folder.manifest)
    rows = look_up(folder, manifest, on_damage=lambda error: set_aside(error.path))
    write_table(folder.records, rows, manifest.axes)
    return rows


def look_up(
    folder: SweepFolder, manifest: Manifest, *, on_damage: Callable[[DamagedFile], object] | None = None
) -> list[RunRow]:
    """Return one row per wanted run, in block order, and per unsupported cell of the sweep; write nothing.

    The values on the axes come from the plan, so an axis that was added later has values for earlier runs too.
    `on_damage` gets each record that cannot be used, before the reason of its row is looked for.
    """
    axes = {cell.name: cell.axes for cell in manifest.cells}
    lookup = _LookUp(folder, on_damage, cache(lambda block: _configs(block_or_none(folder, block))), _Once())
    wanted = [_wanted(lookup, block.name, run) for block in manifest.blocks for run in block.runs]
    rows = [replace(row, axes=axes.get(row.cell, row.axes)) for row in wanted]
    rows += [_unsupported(manifest.sweep, cell) for cell in manifest.cells if cell.unsupported is not None]
    for with_metrics in registry.loaded("run_metrics"):
        rows = with_metrics(folder, rows)
    return rows


@dataclass(frozen=True)
class _LookUp:
    """One look-up of a sweep's rows. `configs` gives those of a block, for a run that left no record."""

    folder: SweepFolder
    on_damage: Callable[[DamagedFile], object] | None
    configs: Callable[[str], Mapping[str, CellConfig]]
    once: _Once


def _wanted(lookup: _LookUp, block: str, run: str) -> RunRow:
    folder, damage = lookup.folder, None
    try:
        return _recorded(folder.name, read_record(folder, run), sha256_file(folder.record(run)), lookup.once)
    except FileNotFoundError:
        pass
    except DamagedFile as error:
        damage = error
        if lookup.on_damage is not None:
            lookup.on_damage(error)
    cell, repeat = Run.parse(run)
    return RunRow(
        sweep=folder.name,
        cell=cell,
        outcome=Outcome.not_run,
        axes={},
        run=run,
        block=block,
        repeat=repeat,
        reason=in_utf8(_why_absent(folder, block, run, damage)),
        config=lookup.configs(block).get(cell),
    )


def _configs(block: Block | None) -> dict[str, CellConfig]:
    """Return the config of each cell of a block as records hold it; {} for a file that is lost or damaged."""
    configs = {} if block is None else block.configs
    return {cell: CellConfig.model_validate(without_secrets(config.raw)) for cell, config in configs.items()}


def _why_absent(folder: SweepFolder, block: str, run: str, damage: DamagedFile | None) -> str:
    if damage is not None and damage.path.exists():
        return f"its record is damaged ({damage.why}); the same command measures it again"
    damaged = folder.damaged_records(run)
    if not damaged:
        return why_and_what_next(folder, block, "the same command measures it")
    try:
        read_record_at(damaged[-1], run)
        why = "by hand: it can be read"
    except DamagedFile as error:
        why = error.why
    return f"its record was set aside as {damaged[-1].name} ({why}); the same command measures it again"


def _recorded(sweep: str, record: Record, sha256: str, once: _Once) -> RunRow:
    return RunRow(
        sweep=sweep,
        cell=record.cell,
        outcome=record.outcome,
        axes=record.axes,
        run=record.run,
        block=record.block,
        repeat=record.repeat,
        position=record.position,
        attempt=record.attempt,
        seed=record.seed,
        reason=None if record.reason is None else in_utf8(record.reason),
        started_at=record.started_at,
        finished_at=record.finished_at,
        wall_seconds=record.wall_seconds,
        config=once(record.config),
        effective=None if record.effective is None else once(record.effective),
        metrics={sys.intern(name): _reading(metric) for name, metric in record.metrics.items()},
        hardware=record.fingerprint.hardware_kind,
        software=once(record.fingerprint.software),
        builds=once(record.fingerprint.builds),
        sources=once(record.fingerprint.sources),
        environment=record.environment,
        git=once(record.git),
        doubts=record.doubts,
        record_sha256=sha256,
        traits=once(record.traits) if isinstance(record.traits, Traits) else record.traits,
    )


def _reading(metric: Metric) -> Reading:
    reason, scope, provenance = (
        None if text is None else sys.intern(text) for text in (metric.reason, metric.scope, metric.provenance)
    )
    return Reading(metric.value, sys.intern(metric.unit), reason, scope, provenance)


def _unsupported(sweep: str, cell: PlannedCell) -> RunRow:
    reason = None if cell.unsupported is None else in_utf8(cell.unsupported)
    return RunRow(sweep=sweep, cell=cell.name, outcome=Outcome.unsupported, axes=cell.axes, reason=reason)
