"""Collect every run that the plan wants, measured or not, as a typed row. This step reads the records.

A record that is truncated, altered or misplaced is set aside. Its run becomes a `not_run` row that says so.
`records.parquet` is written beside, for other programs.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cache
from typing import Any, TypeVar

from accelsweep.analyse.collected.accounted import accounted
from accelsweep.analyse.collected.export import in_utf8, write_table
from accelsweep.analyse.collected.runs import Reading, RunRow
from accelsweep.base.documents import canonical_json, set_aside, sha256_file
from accelsweep.base.errors import DamagedFile
from accelsweep.base.secrets import without_secrets
from accelsweep.core.cells.config import CellConfig
from accelsweep.core.planned.plans import Block, Manifest, PlannedCell, Run
from accelsweep.core.recorded.outcome import Outcome
from accelsweep.core.recorded.record import Effective, Metric, Record
from accelsweep.core.recorded.traits import Traits
from accelsweep.state.blocks import block_or_none
from accelsweep.state.folders import SweepFolder
from accelsweep.state.halts import why_and_what_next
from accelsweep.state.records import read_record, read_record_at

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
    return accounted(folder, rows)


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
