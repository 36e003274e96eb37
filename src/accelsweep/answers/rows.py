"""The rows of a sweep's runs, from files alone: outcome, reason, rate and doubts of each, and the orders of rows."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

from accelsweep.answers.forms.listed import ListedRun, RunsAnswer
from accelsweep.base.errors import DamagedFile, InputError, nearest
from accelsweep.core.cells.cell import label, repeat_label
from accelsweep.core.cells.tasks import UNIT_OF, compared_rate
from accelsweep.core.planned.plans import Manifest, PlannedCell, Run
from accelsweep.core.recorded.outcome import Outcome
from accelsweep.core.recorded.record import Record
from accelsweep.state.attempts import RunFolder
from accelsweep.state.folders import SweepFolder
from accelsweep.state.halts import why_and_what_next

SORTS: dict[str, Callable[[ListedRun], Any]] = {
    "plan": lambda _: 0,
    "rate": lambda row: -row.rate if row.rate is not None else float("inf"),
    "seconds": lambda row: -row.wall_seconds if row.wall_seconds is not None else float("inf"),
    "doubts": lambda row: -len(row.doubts),
    "outcome": lambda row: list(Outcome).index(row.outcome),
    "setting": lambda row: row.label,
    "start": lambda row: (row.started_at is None, row.started_at or ""),
}
"""Orders of the rows by name; rows that are equal in one stay in plan order, and absent values come last."""


def in_words(row: ListedRun) -> str:
    """Return the row's setting and repeat: `cpu x2 | batch 32, repeat 0`."""
    return row.label if row.repeat is None else repeat_label(row.label, row.repeat)


def outcome_named(name: str) -> Outcome:
    """Return the outcome of this name; raise InputError that lists the known ones."""
    try:
        return Outcome(name)
    except ValueError:
        known = [str(outcome) for outcome in Outcome]
        raise InputError(f"no outcome {name!r}{nearest(name, known)}; there are: {', '.join(known)}") from None


def listed(folder: SweepFolder) -> RunsAnswer:
    """Return a row for each wanted run in plan order, then one for each cell that the plan marks as unsupported."""
    manifest = Manifest.read(folder.manifest)
    records: dict[str, Record | DamagedFile | None] = {run: _read(folder, run) for run in manifest.wanted_runs()}
    found = [record for record in records.values() if isinstance(record, Record)]
    found.sort(key=lambda record: record.cell != manifest.baseline)
    rate = compared_rate(manifest.settings.analysis.rate, [found[0].config.work]) if found else None
    cells = {cell.name: cell for cell in manifest.cells}
    planned = [(block.name, run) for block in manifest.blocks for run in block.runs]
    rows = [_row(folder, block, run, cells, records[run], rate) for block, run in planned]
    return RunsAnswer(
        sweep=folder.name,
        rate_metric=rate,
        rate_unit=None if rate is None else _unit(found, rate),
        runs=(*rows, *_unsupported(manifest)),
    )


def _read(folder: SweepFolder, run: str) -> Record | DamagedFile | None:
    try:
        return RunFolder(folder.run(run), run).record()
    except DamagedFile as error:
        return error


def _unit(records: Sequence[Record], rate: str) -> str:
    units = (record.metrics[rate].unit for record in records if rate in record.metrics)
    return next(units, UNIT_OF.get(rate, ""))


def _row(
    folder: SweepFolder,
    block: str,
    run: str,
    cells: dict[str, PlannedCell],
    record: Record | DamagedFile | None,
    rate: str | None,
) -> ListedRun:
    name, repeat = Run.parse(run)
    axes = cells[name].axes if name in cells else {}
    row = partial(
        ListedRun,
        cell=name,
        label=label(axes) if name in cells else name,
        axes=axes,
        run=run,
        block=block,
        repeat=repeat,
        folder=str(folder.run(run).relative_to(folder.home)),
    )
    if not isinstance(record, Record):
        return row(outcome=Outcome.not_run, reason=_why_absent(folder, block, record))
    metric = record.metrics.get(rate or "") if record.outcome is Outcome.measured else None
    return row(
        attempt=record.attempt,
        outcome=record.outcome,
        reason=record.reason,
        rate=None if metric is None else metric.value,
        doubts=record.doubts,
        disturbed=next((one.message for one in record.doubts if one.disturbing), None),
        started_at=record.started_at,
        wall_seconds=record.wall_seconds,
    )


def _why_absent(folder: SweepFolder, block: str, damaged: DamagedFile | None) -> str:
    if damaged is not None:
        return f"its record is damaged: {damaged.why}"
    return why_and_what_next(folder, block, "the same `accelsweep run` measures it")


def _unsupported(manifest: Manifest) -> Iterator[ListedRun]:
    for cell in manifest.cells:
        if cell.unsupported is not None:
            yield ListedRun(
                cell=cell.name,
                label=label(cell.axes),
                axes=cell.axes,
                outcome=Outcome.unsupported,
                reason=cell.unsupported,
            )
