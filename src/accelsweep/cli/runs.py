"""`accelsweep runs`: every run of a sweep with outcome, reason, rate, doubts and folder, from files alone."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

from pydantic import Field

from accelsweep.config.setting import describe_axes, label, override_value, repeat_label, shared_devices
from accelsweep.driver.console import say, say_parts
from accelsweep.driver.json_output import Answer, AnswerPart
from accelsweep.driver.sweep_lock import refuse_while_run
from accelsweep.errors import DamagedFile, InputError, nearest
from accelsweep.metrics import rate_unit
from accelsweep.records.layout import SweepFolder, existing_sweep
from accelsweep.records.plan import Manifest, PlannedSetting
from accelsweep.records.run_files import RunFolder, readable_blocks
from accelsweep.records.run_record import Record
from accelsweep.records.stop_reasons import why_and_what_next
from accelsweep.report.units import number
from accelsweep.results import Doubt, Outcome
from accelsweep.run_config import Run
from accelsweep.tasks import compared_rate

# The devices that all settings of a sweep share, told once in a heading and not in each label.


def devices_of(folder: SweepFolder, manifest: Manifest) -> str:
    """Return what `shared_devices` says of the sweep, by its first block that can be read; nothing without one."""
    first = next(readable_blocks(folder, manifest), None)
    return "" if first is None else shared_devices(manifest.axes, first.configs.values())


# The answer of `accelsweep runs`.


class ListedRun(AnswerPart):
    """A run, or a setting that the plan marks as unsupported. A field that a row does not have is null."""

    run: str | None = Field(None, description="the run's name")
    setting: str = Field(description="its setting's name in files")
    label: str = Field(description="its setting in words")
    axes: dict[str, Any] = Field(description="the swept keys with this setting's values")
    repeat: int | None = Field(None, description="its number among the runs of its setting, from 0")
    block: str | None = Field(None, description="its block")
    attempt: int | None = Field(None, description="the number of the attempt that left the record, from 1")
    outcome: Outcome = Field(description="how it ended")
    reason: str | None = Field(None, description="why it ended so; null for a measured run")
    rate: float | None = Field(None, description="the rate, in the answer's `rate_unit`")
    doubts: tuple[Doubt, ...] = Field((), description="reasons to distrust its numbers")
    disturbed: str | None = Field(None, description="how others used the machine meanwhile")
    started_at: str | None = Field(None, description="when it began")
    wall_seconds: float | None = Field(None, description="how long it took, start and end included")
    folder: str | None = Field(None, description="the path of its folder")


class RunsAnswer(Answer):
    """`accelsweep runs NAME --json`: every run of a sweep."""

    kind: ClassVar[str] = "runs"

    sweep: str = Field(description="the sweep's name")
    rate_metric: str | None = Field(description="the metric that settings are compared by, null before the first run")
    rate_unit: str | None = Field(description="its unit")
    runs: tuple[ListedRun, ...] = Field(description="the runs, in the order that was asked for")


# The rows of a sweep's runs, from files alone: outcome, reason, rate and doubts of each, and the orders of rows.

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


def run_in_words(row: ListedRun) -> str:
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
    """Return a row for each wanted run in plan order, then one for each setting that the plan marks as unsupported."""
    manifest = Manifest.read(folder.manifest)
    records: dict[str, Record | DamagedFile | None] = {run: _read(folder, run) for run in manifest.wanted_runs()}
    found = [record for record in records.values() if isinstance(record, Record)]
    found.sort(key=lambda record: record.setting != manifest.baseline)
    rate = compared_rate(manifest.options.analysis.rate, [found[0].config.task_name]) if found else None
    settings = {setting.name: setting for setting in manifest.settings}
    planned = [(block.name, run) for block in manifest.blocks for run in block.runs]
    rows = [_row(folder, block, run, settings, records[run], rate) for block, run in planned]
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
    return next(units, rate_unit(rate))


def _row(
    folder: SweepFolder,
    block: str,
    run: str,
    settings: dict[str, PlannedSetting],
    record: Record | DamagedFile | None,
    rate: str | None,
) -> ListedRun:
    name, repeat = Run.parse(run)
    axes = settings[name].axes if name in settings else {}
    row = partial(
        ListedRun,
        setting=name,
        label=label(axes) if name in settings else name,
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
    for setting in manifest.settings:
        if setting.unsupported is not None:
            yield ListedRun(
                setting=setting.name,
                label=label(setting.axes),
                axes=setting.axes,
                outcome=Outcome.unsupported,
                reason=setting.unsupported,
            )


_INDENT = 15


def print_runs(home: Path, name: str, outcome: str | None, *, sort: str = "plan", as_json: bool = False) -> None:
    """Print a line for each run of the sweep, or for those with this outcome, with reason and doubts below it.

    `sort` is one of `SORTS`. Raises InputError for an unknown outcome or order.
    """
    wanted = None if outcome is None else outcome_named(outcome)
    if sort not in SORTS:
        raise InputError(f"--sort {sort!r} is not known{nearest(sort, SORTS)}; there are: {', '.join(SORTS)}")
    folder = existing_sweep(home, name)
    answer = listed(folder)
    rows = sorted((row for row in answer.runs if wanted in (None, row.outcome)), key=SORTS[sort])
    if as_json:
        say(answer.model_copy(update={"runs": tuple(rows)}).text())
        return
    if rows and (devices := devices_of(folder, Manifest.read(folder.manifest))):
        say(f"{name}:{devices}")
    for row in rows:
        _print(row, answer.rate_unit or "")
    if not rows:
        say(f"{name}: no run is {wanted}" if wanted else f"{name}: no runs")


def _print(row: ListedRun, unit: str) -> None:
    rate = number(row.rate, unit) if row.rate is not None else ""
    say_parts(f"{row.outcome:<13}  ", [run_in_words(row), rate, row.folder or ""])
    for line in (row.reason or "").splitlines():
        say(f"{'':<{_INDENT}}{line}")
    if row.doubts:
        say(f"{'':<{_INDENT}}doubts: {', '.join(doubt.code for doubt in row.doubts)}")


# One setting of a sweep, as somebody typed it: its name in files or the beginning of it, its words, or its values.


def full_name(folder: SweepFolder, typed: str) -> str:
    """Return the name of the one runnable setting that `typed` means: `3f2a`, `cpu x2 | batch 32` or `batch_size=32`.

    Raises InputError if there is none or several, with the nearest one.
    """
    settings = Manifest.read(folder.manifest).settings
    runnable = [setting for setting in settings if setting.unsupported is None]
    matching = [setting for setting in runnable if setting.name.startswith(typed)]
    matching = matching or [setting for setting in runnable if typed in _words(setting) or _has_values(setting, typed)]
    if len(matching) == 1:
        return matching[0].name
    ruled_out = [
        setting.unsupported for setting in settings if setting.unsupported is not None and setting.name == typed
    ]
    if ruled_out:
        raise InputError(f"setting {typed!r} of {folder.name!r} is unsupported: {ruled_out[0]}")
    found = "is the beginning of several" if matching else "names no runnable setting"
    words = [word for setting in runnable for word in (setting.name, *_words(setting))]
    near = "" if matching else nearest(typed, words)
    listed = "; ".join(f"{setting.name} ({label(setting.axes)})" for setting in matching or runnable)
    raise InputError(f"{typed!r} {found}{near}; the runnable settings of {folder.name!r} are: {listed}")


def _words(setting: PlannedSetting) -> tuple[str, str]:
    return label(setting.axes), describe_axes(setting.axes)


def _has_values(setting: PlannedSetting, typed: str) -> bool:
    """Return whether `typed` is `KEY=VALUE`, or several with spaces or commas between, and the setting has them all."""
    wanted = [part.partition("=") for part in typed.replace(",", " ").split()]
    axes = {key: override_value(value) for key, value in setting.axes.items()}
    return bool(wanted) and all(axes.get(key) == value for key, _, value in wanted)


# `accelsweep retry`: re-open runs that ended badly or were disturbed; the next `accelsweep run` measures them.

DISTURBED = "disturbed"
"""A word beside the outcomes: runs that were measured while others used the machine."""

_KEPT = {
    Outcome.measured: "it is an answer; more of them: accelsweep run ... --add-repeats K",
    Outcome.not_run: "there is nothing to re-open; the same `accelsweep run` measures it",
}


def retry_runs(home: Path, name: str, outcome: str) -> None:
    """Re-open every run of the sweep that ended as `outcome`, and say which; their records stay as earlier attempts.

    `disturbed` re-opens the measured runs during which others used the machine.
    """
    wanted = DISTURBED if outcome == DISTURBED else outcome_named(outcome)
    if isinstance(wanted, Outcome) and wanted in _KEPT:
        raise InputError(f"runs that are {wanted} cannot be retried: {_KEPT[wanted]}")
    folder = existing_sweep(home, name)
    refuse_while_run(folder)
    opened = 0
    for row in listed(folder).runs:
        reason = row.disturbed if wanted == DISTURBED else row.reason
        if reason is None if wanted == DISTURBED else row.outcome is not wanted:
            continue
        if row.run is None:
            say(f"stays {wanted}: {run_in_words(row)}: {reason}")
        else:
            opened += RunFolder(folder.run(row.run), row.run).reopen()
            say(f"re-opened: {run_in_words(row)} (was {wanted}: {reason})")
    _forget_done(folder)
    say(f"{name}: {opened} runs re-opened" + ("; the same `accelsweep run` measures them" if opened else ""))


def _forget_done(folder: SweepFolder) -> None:
    for block in Manifest.read(folder.manifest).blocks:
        if any(not folder.record(run).exists() for run in block.runs):
            folder.done(block.name).unlink(missing_ok=True)
