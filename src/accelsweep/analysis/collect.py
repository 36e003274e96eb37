"""Reads the records and collects every planned run, measured or not, as a typed row.

A truncated, altered or misplaced record is set aside, and its run becomes a `not_run` row that states the reason. The
rows are also written to `records.parquet` for other programs; accelsweep itself does not read that file.
"""

from __future__ import annotations

import hashlib
import io
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cache, partial
from operator import attrgetter
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pydantic_core import to_jsonable_python

from accelsweep import registry
from accelsweep.analysis.run_results import RunRow
from accelsweep.config.schema import checked_config
from accelsweep.errors import DamagedFile
from accelsweep.files import read_regular, set_aside, set_aside_non_file, write_bytes_atomically
from accelsweep.garbage_collection import collector_paused
from accelsweep.metrics import Metric
from accelsweep.plain_json import canonical_json
from accelsweep.records.early_decisions import decided_runs
from accelsweep.records.layout import SweepFolder
from accelsweep.records.not_run_reasons import not_run_reason_with_remedy
from accelsweep.records.plan import Manifest
from accelsweep.records.run_files import block_or_none, check_record, read_record_at
from accelsweep.records.run_record import Record
from accelsweep.redaction import without_secrets
from accelsweep.results import Effective, Fingerprint, Outcome, Traits
from accelsweep.run_config import Run, SettingConfig
from accelsweep.run_environment import HardwareKind

TEXT, WHOLE, REAL, FLAG = pa.string(), pa.int64(), pa.float64(), pa.bool_()

_PLAIN = {
    **dict.fromkeys(("sweep", "setting", "run", "block"), TEXT),
    **dict.fromkeys(("repeat", "position", "attempt", "seed"), WHOLE),
    **dict.fromkeys(("outcome", "reason", "started_at", "finished_at"), TEXT),
    "wall_seconds": REAL,
}
"""Columns copied from the row field of the same name."""


_JSON: dict[str, Callable[[RunRow], Any]] = {
    "config": lambda run: None if run.config is None else run.config.raw,
    "effective": attrgetter("effective"),
    "metrics": attrgetter("metrics"),
    "hardware": attrgetter("hardware.details"),
    "software": attrgetter("software"),
    "builds": attrgetter("builds"),
    "sources": attrgetter("sources"),
    "environment": attrgetter("environment"),
    "git": attrgetter("git"),
    "doubts": attrgetter("doubts"),
}
"""Columns that contain JSON; all of them except `config` are null if there is no record."""


_ROW_GROUP = 2000
"""Maximum number of runs that are serialised at once; the table of 10,000 runs would take 300 MiB."""


def runs_tables(runs: Sequence[RunRow], axes: Iterable[str]) -> Iterator[pa.Table]:
    """Yield the runs, in the given order, as Arrow tables of at most `_ROW_GROUP` rows with the same columns.

    Times are in UTC, formatted as ISO 8601. The columns of `_PLAIN` and `_JSON` and the record's digest come first,
    followed by `axis.KEY` for each axis (JSON if the axis mixes types) and a float column for each metric. The float is
    null if the metric was not measured; `metrics` then contains the reason. Without runs, one empty table is yielded.
    """
    kinds = {axis: _axis_kind([run.axes.get(axis) for run in runs]) for axis in axes}
    metrics = sorted({name for run in runs for name in run.metrics})
    metrics_text = partial(_metrics_text, head=cache(_metric_head))
    for start in range(0, max(1, len(runs)), _ROW_GROUP):
        part = runs[start : start + _ROW_GROUP]
        columns = {name: _column([getattr(run, name) for run in part], kind) for name, kind in _PLAIN.items()}
        for name, value in _JSON.items():
            parts = [value(run) if run.recorded or name == "config" else None for run in part]
            columns[name] = _column(_texts(parts, metrics_text if name == "metrics" else _text), TEXT)
        columns["record_sha256"] = _column([run.record_sha256 for run in part], TEXT)
        for axis, kind in kinds.items():
            values = [run.axes.get(axis) for run in part]
            columns[f"axis.{axis}"] = _column(values if kind else list(map(canonical_json, values)), kind or TEXT)
        for metric in metrics:
            if metric not in columns:
                values = [run.metrics[metric].value if metric in run.metrics else None for run in part]
                columns[metric] = _column(values, REAL)
        yield pa.table(columns)


def utf8_safe(text: str) -> str:
    """Replace lone surrogates, which UTF-8 cannot encode, with their JSON escapes."""
    return text if text.isascii() else _utf8(text).decode()


def _utf8(text: str) -> bytes:
    return text.encode("utf-8", "backslashreplace")


def _texts(parts: list[Any], text: Callable[[Any], str]) -> list[str | None]:
    """Serialise each part to JSON. Parts shared by many runs (see `_Interned`) are serialised only once."""
    texts = {id(part): text(part) for part in {id(part): part for part in parts if part is not None}.values()}
    return [None if part is None else texts[id(part)] for part in parts]


def _text(part: Any) -> str:
    return canonical_json(part if isinstance(part, dict) else to_jsonable_python(part))


_described = attrgetter("unit", "reason", "scope", "provenance")


def _metrics_text(metrics: Mapping[str, Metric], head: Callable[..., str]) -> str:
    """Return the canonical JSON of a run's metrics. Only their values differ from run to run, and they come last."""
    named = sorted(metrics.items())
    values = canonical_json([metric.value for _, metric in named])[1:-1].split(",")
    heads = [head(name, *_described(metric)) for name, metric in named]
    return "{" + ",".join([f"{head}{value}}}" for head, value in zip(heads, values, strict=False)]) + "}"


def _metric_head(name: str, *description: str | None) -> str:
    """Return the canonical JSON of a metric up to its value."""
    described = dict(zip(("unit", "reason", "scope", "provenance"), description, strict=True))
    return canonical_json({name: {**described, "value": 0}})[1:].removesuffix("0}}")


def _column(values: Sequence[Any], kind: pa.DataType) -> pa.Array:
    """Return values of one kind, or None, as an Arrow array.

    It is made of its buffers, because `pyarrow.array` imports pandas, which takes a third of the time of this step.
    """
    known = np.array([value is not None for value in values], np.bool_)
    validity = pa.py_buffer(np.packbits(known, bitorder="little"))
    if kind == TEXT:
        texts = [b"" if value is None else _utf8(value) for value in values]
        offsets = np.cumsum([0, *map(len, texts)], dtype=np.int32)
        return pa.StringArray.from_buffers(len(texts), pa.py_buffer(offsets), pa.py_buffer(b"".join(texts)), validity)
    plain = np.array([value or 0 for value in values], str(kind))
    data = np.packbits(plain, bitorder="little") if kind == FLAG else plain
    return pa.Array.from_buffers(kind, len(values), [validity, pa.py_buffer(data)])


def _axis_kind(values: list[Any]) -> pa.DataType | None:
    """Return the type that all of an axis's values have, or None if they have several or another one."""
    kinds = {type(value) for value in values}
    for kind, arrow in ((str, TEXT), (bool, FLAG), (float, REAL), (int, WHOLE)):
        if kinds == {kind} and not (kind is int and any(abs(value) >= 2**63 for value in values)):
            return arrow
    return None


_Axes = Mapping[str, Mapping[str, Any]]
"""The values on the axes, by the name of the setting."""

_Part = TypeVar("_Part", SettingConfig, Effective, Fingerprint, HardwareKind, Traits, Mapping[str, Any])


class _Interned:
    """Shares one object between equal parts of records, because thousands of runs have the same config.

    Parts are equal if their representations are, which tells 1 from 1.0 and True. Records have sorted keys.
    """

    def __init__(self) -> None:
        self._parts: dict[tuple[type, str], Any] = {}
        self._missing: dict[Metric, Metric] = {}

    def __call__(self, part: _Part) -> _Part:
        """Return the first object seen that is equal to `part`."""
        plain = part.raw if isinstance(part, SettingConfig) else part
        interned: _Part = self._parts.setdefault((type(part), repr(plain)), part)
        return interned

    def metrics(self, metrics: dict[str, Metric]) -> dict[str, Metric]:
        """Replace metrics without a value, which thousands of runs have in common, by the first equal one seen."""
        return {
            name: self._missing.setdefault(metric, metric) if metric.value is None else metric
            for name, metric in metrics.items()
        }


def collect(folder: SweepFolder) -> list[RunRow]:
    """Set damaged records aside, write `records.parquet` if it changed, and return the rows from `read_runs`."""
    manifest = Manifest.read(folder.manifest)
    rows = read_runs(folder, manifest, on_damage=lambda error: set_aside(error.path))
    buffer, path = io.BytesIO(), folder.records
    groups = runs_tables(rows, manifest.axes)
    group = next(groups)
    with pq.ParquetWriter(buffer, group.schema, compression="zstd") as writer:
        while group is not None:
            writer.write_table(group)
            del group  # it takes 30 MiB, as does the next one while it is made
            group = next(groups, None)
    pa.default_memory_pool().release_unused()
    set_aside_non_file(path)
    if not path.exists() or path.read_bytes() != buffer.getvalue():
        write_bytes_atomically(path, buffer.getvalue())
    return rows


@collector_paused()
def read_runs(
    folder: SweepFolder, manifest: Manifest, *, on_damage: Callable[[DamagedFile], object] | None = None
) -> list[RunRow]:
    """Return one row per planned run, in block order, and one per unsupported setting. Nothing is written.

    Axis values come from the plan, so an axis that was added later is also filled in for earlier runs. `on_damage` is
    called with the error for each unusable record, before the reason in its row is determined.
    """
    axes = {setting.name: setting.axes for setting in manifest.settings}
    decided = decided_runs(folder, manifest)
    intern, rows = _Interned(), []
    for block in manifest.blocks:
        configs = cache(partial(_configs, folder, block.name))
        for run in block.runs:
            damage = None
            try:
                row = _read_row(folder, run, axes, intern)
            except FileNotFoundError:
                row = None
            except DamagedFile as error:
                row, damage = None, error
                if on_damage is not None:
                    on_damage(error)
            if row is None:
                setting, repeat = Run.parse(run)
                decision = decided.get(run)
                why = _why_missing(folder, block.name, run, damage) if decision is None else decision.reason
                row = RunRow(
                    sweep=folder.name,
                    setting=setting,
                    outcome=Outcome.not_run if decision is None else Outcome.decided,
                    axes=axes.get(setting, {}),
                    run=run,
                    block=block.name,
                    repeat=repeat,
                    reason=utf8_safe(why),
                    config=configs().get(setting),
                    decision=decision,
                )
            rows.append(row)
    for planned in manifest.settings:
        if planned.unsupported is not None:
            reason = utf8_safe(planned.unsupported)
            rows.append(
                RunRow(
                    sweep=manifest.sweep,
                    setting=planned.name,
                    outcome=Outcome.unsupported,
                    axes=planned.axes,
                    reason=reason,
                )
            )
    for add_metrics in registry.loaded("run_metrics"):
        rows = add_metrics(folder, rows)
    return rows


def _configs(folder: SweepFolder, block: str) -> dict[str, SettingConfig]:
    """Return a block's configs keyed by setting, in the form used by records; {} if its file is missing or damaged."""
    document = block_or_none(folder, block)
    configs = {} if document is None else document.configs
    return {setting: checked_config(without_secrets(config.raw)) for setting, config in configs.items()}


def _why_missing(folder: SweepFolder, block: str, run: str, damage: DamagedFile | None) -> str:
    if damage is not None and damage.path.exists():
        return f"its record is damaged ({damage.reason}); the same command measures it again"
    damaged = folder.damaged_records(run)
    if not damaged:
        return not_run_reason_with_remedy(folder, block, "the same command measures it")
    try:
        read_record_at(damaged[-1], run)
        why = "manually: it is readable"
    except DamagedFile as error:
        why = error.reason
    return f"its record was set aside as {damaged[-1].name} ({why}); the same command measures it again"


def _read_row(folder: SweepFolder, run: str, axes: _Axes, intern: _Interned) -> RunRow:
    """Return the row of a run from its record. Raises like `read_record`."""
    path = folder.record(run)
    content = read_regular(path)
    record = check_record(Record.unsealed(content, path), path, run)
    return _recorded(folder.name, record, hashlib.sha256(content).hexdigest(), axes, intern)


def _recorded(sweep: str, record: Record, sha256: str, axes: _Axes, intern: _Interned) -> RunRow:
    fingerprint = intern(record.fingerprint)
    return RunRow(
        sweep=sweep,
        setting=record.setting,
        outcome=record.outcome,
        axes=axes.get(record.setting, record.axes),
        run=record.run,
        block=record.block,
        repeat=record.repeat,
        position=record.position,
        attempt=record.attempt,
        seed=record.seed,
        reason=None if record.reason is None else utf8_safe(record.reason),
        started_at=record.started_at,
        finished_at=record.finished_at,
        wall_seconds=record.wall_seconds,
        config=intern(record.config),
        effective=None if record.effective is None else intern(record.effective),
        metrics=intern.metrics(record.metrics),
        hardware=intern(fingerprint.hardware_kind),
        software=fingerprint.software,
        builds=fingerprint.builds,
        sources=fingerprint.sources,
        environment=record.environment,
        git=intern(record.git),
        doubts=record.doubts,
        record_sha256=sha256,
        earlier_attempts=record.earlier_attempts,
        traits=intern(record.traits) if isinstance(record.traits, Traits) else record.traits,
    )
