"""`accelsweep runs` and `accelsweep retry`, and resolving a setting typed by the user."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from textwrap import indent
from typing import TYPE_CHECKING, Any, ClassVar

from pydantic import Field

from accelsweep.config.setting import label, override_value, repeat_label
from accelsweep.driver.console import Listing, say, show
from accelsweep.driver.json_output import Answer
from accelsweep.driver.sweep_lock import refuse_if_running
from accelsweep.errors import InputError, nearest
from accelsweep.json_documents import Frozen
from accelsweep.metrics import rate_unit
from accelsweep.records.early_decisions import decided_runs, early_decisions
from accelsweep.records.layout import SweepFolder, existing_sweep
from accelsweep.records.plan import Manifest, PlannedSetting
from accelsweep.records.run_files import RunFolder, shared_devices_of
from accelsweep.records.run_record import EarlierAttempt
from accelsweep.report.formatting import count, number, unit_word
from accelsweep.results import Doubt, Outcome
from accelsweep.significant_digits import count_of

if TYPE_CHECKING:
    from accelsweep.analysis.run_results import RunRow


class ListedRun(Frozen):
    """A run, or a setting that the plan marks as unsupported. Fields that do not apply are null."""

    run: str | None = Field(None, description="the run's name")
    setting: str = Field(description="the setting's ID")
    label: str = Field(description="the setting's label")
    axes: dict[str, Any] = Field(description="the swept keys with this setting's values")
    repeat: int | None = Field(None, description="zero-based index of the run within its setting")
    block: str | None = Field(None, description="the block that contains the run")
    attempt: int | None = Field(None, description="one-based number of the attempt that wrote the record")
    earlier_attempts: tuple[EarlierAttempt, ...] = Field(
        (), description="the earlier attempts, and why the result of each is not used"
    )
    outcome: Outcome = Field(description="how the run ended")
    reason: str | None = Field(None, description="the reason for this outcome; null for a measured run")
    rate: float | None = Field(None, description="the rate, in the answer's `rate_unit`")
    doubts: tuple[Doubt, ...] = Field((), description="reasons to distrust its numbers")
    disturbed: str | None = Field(None, description="how other load disturbed the run")
    started_at: str | None = Field(None, description="when the run started")
    wall_seconds: float | None = Field(None, description="duration of the run, including start-up and shutdown")
    folder: str | None = Field(None, description="the path of the run's folder")

    @property
    def all_reasons(self) -> tuple[str, ...]:
        """The reason for the outcome, and those of earlier attempts, each once."""
        earlier = (f"attempt {attempt.attempt}: {attempt.reason}" for attempt in self.earlier_attempts)
        return tuple(dict.fromkeys(filter(None, (self.reason, *earlier))))

    @property
    def name_in_words(self) -> str:
        """The setting and the repeat: `batch 32, 2 processes, repeat 0`."""
        return self.label if self.repeat is None else repeat_label(self.label, self.repeat)


class RunsAnswer(Answer):
    """`accelsweep runs NAME --json`: every run of a sweep."""

    kind: ClassVar[str] = "runs"

    sweep: str = Field(description="the sweep's name")
    rate_metric: str | None = Field(description="the metric by which settings are compared; null before the first run")
    rate_unit: str | None = Field(description="the unit of the rate")
    runs: tuple[ListedRun, ...] = Field(description="the runs, in the requested order")


SORTS: Mapping[str, Callable[[ListedRun], Any]] = {
    "plan": lambda _: 0,
    "rate": lambda row: -row.rate if row.rate is not None else float("inf"),
    "seconds": lambda row: -row.wall_seconds if row.wall_seconds is not None else float("inf"),
    "doubts": lambda row: -len(row.doubts),
    "outcome": lambda row: list(Outcome).index(row.outcome),
    "setting": lambda row: row.label,
    "start": lambda row: (row.started_at is None, row.started_at or ""),
}
"""Sort keys by name. Rows with equal keys stay in plan order; missing values come last."""


def print_runs(home: Path, name: str, outcome: str | None, *, sort: str = "plan", as_json: bool = False) -> None:
    """Print a table of the sweep's runs, or only of those with this outcome, followed by the reasons.

    `sort` is one of `SORTS`. Raises InputError for an unknown outcome or order.
    """
    wanted = None if outcome is None else _outcome_named(outcome)
    if sort not in SORTS:
        raise InputError(f"--sort {sort!r} is not known{nearest(sort, SORTS)}; choose one of: {', '.join(SORTS)}")
    folder = existing_sweep(home, name)
    answer = _list_runs(folder)
    rows = sorted((row for row in answer.runs if wanted in (None, row.outcome)), key=SORTS[sort])
    if as_json:
        say(answer.model_copy(update={"runs": tuple(rows)}).text())
        return
    if not rows:
        say(f"{name}: no run is {wanted}" if wanted else f"{name}: no runs")
        return
    devices = shared_devices_of(folder, Manifest.read(folder.manifest))
    title = f"{name}: {count_of(len(rows), 'run')}{devices}, in {(folder.root / 'runs').relative_to(home)}"
    reasons = list(dict.fromkeys(reason for row in rows for reason in row.all_reasons))
    numbers = {reason: index for index, reason in enumerate(reasons, 1)}
    headings = ("setting", "outcome", unit_word(answer.rate_unit or "") or "rate", "doubts", "run")
    cells = [_cells(row, numbers) for row in rows]
    filled = [column for column, heading in enumerate(headings) if any(line[column] for line in cells)]
    lines = tuple(tuple(line[column] for column in filled) for line in cells)
    show(Listing(title, tuple(headings[column] for column in filled), lines, numbers=headings[2:3], dense=True))
    for reason, index in numbers.items():
        say(f"[{index}] {indent(reason, ' ' * 4).lstrip()}")


def _cells(row: ListedRun, numbers: Mapping[str, int]) -> tuple[str, ...]:
    """Return a run's cells. Reasons, which may be long, are printed below the table, each with its number."""
    return (
        row.label,
        "".join([row.outcome, *(f" [{numbers[reason]}]" for reason in row.all_reasons)]),
        "" if row.rate is None else number(row.rate),
        ", ".join(doubt.code for doubt in row.doubts),
        row.run or "",
    )


def _outcome_named(name: str) -> Outcome:
    try:
        return Outcome(name)
    except ValueError:
        known = [str(outcome) for outcome in Outcome]
        raise InputError(f"no outcome {name!r}{nearest(name, known)}; choose one of: {', '.join(known)}") from None


def _list_runs(folder: SweepFolder) -> RunsAnswer:
    """Return a row for each planned run, in plan order, then one for each unsupported setting."""
    from accelsweep.analysis.collect import read_runs
    from accelsweep.analysis.run_results import rate_metric_of

    manifest = Manifest.read(folder.manifest)
    runs = read_runs(folder, manifest)
    recorded = [run for run in runs if run.recorded]
    rate = unit = None
    if recorded:
        rate = rate_metric_of(manifest, recorded)
        unit = next((run.metrics[rate].unit for run in recorded if rate in run.metrics), rate_unit(rate))
    return RunsAnswer(
        sweep=folder.name,
        rate_metric=rate,
        rate_unit=unit,
        runs=tuple(_list_run(folder, run, rate) for run in runs),
    )


def _list_run(folder: SweepFolder, run: RunRow, rate: str | None) -> ListedRun:
    return ListedRun(
        run=run.run,
        setting=run.setting,
        label=label(run.axes),
        axes=dict(run.axes),
        repeat=run.repeat,
        block=run.block,
        attempt=run.attempt,
        earlier_attempts=run.earlier_attempts,
        outcome=run.outcome,
        reason=run.reason,
        rate=None if rate is None else run.value(rate),
        doubts=run.doubts,
        disturbed=next((doubt.message for doubt in run.doubts if doubt.disturbing), None),
        started_at=run.started_at,
        wall_seconds=run.wall_seconds,
        folder=None if run.run is None else str(folder.run(run.run).relative_to(folder.home)),
    )


# `accelsweep retry`: reopen runs that failed or were disturbed; the next `accelsweep run` measures them.

DISTURBED = "disturbed"
"""Accepted by `retry` in addition to outcomes: selects measured runs that were disturbed by other load."""

_NOT_RETRIED = {
    Outcome.measured: "they have a result; for more repeats: accelsweep run ... --add-repeats K",
    Outcome.not_run: "there is nothing to re-open; the same `accelsweep run` measures them",
}


def retry_runs(home: Path, name: str, outcome: str) -> None:
    """Reopen and list every run of the sweep that ended with `outcome`. Their records are kept as earlier attempts.

    `disturbed` reopens the measured runs that were disturbed by other load. The settings of runs that were left out
    (`decided`) are no longer left out.
    """
    wanted = DISTURBED if outcome == DISTURBED else _outcome_named(outcome)
    if isinstance(wanted, Outcome) and wanted in _NOT_RETRIED:
        raise InputError(f"runs that are {wanted} cannot be retried: {_NOT_RETRIED[wanted]}")
    folder = existing_sweep(home, name)
    refuse_if_running(folder)
    opened, manifest = 0, Manifest.read(folder.manifest)
    left_out = set[str]()
    for row in _list_runs(folder).runs:
        reason = row.disturbed if wanted == DISTURBED else row.reason
        if reason is None if wanted == DISTURBED else row.outcome is not wanted:
            continue
        if row.run is None:
            say(f"stays {wanted}: {row.name_in_words}: {reason}")
            continue
        if wanted is Outcome.decided:
            left_out.add(row.setting)
            opened += 1
        else:
            opened += RunFolder(folder.run(row.run), row.run).reopen()
        say(f"re-opened: {row.name_in_words} (was {wanted}: {reason})")
    if left_out:
        early_decisions(folder).reopen(left_out).write(folder.early_decisions)
    decided = decided_runs(folder, manifest)
    for block in manifest.blocks:
        if any(run not in decided and not folder.record(run).exists() for run in block.runs):
            folder.done(block.name).unlink(missing_ok=True)
    say(f"{name}: {count(opened, 'run')} re-opened" + ("; the same `accelsweep run` measures them" if opened else ""))


# Resolves a setting typed by the user: its ID or an ID prefix, its label, or its values.


def resolve_setting(folder: SweepFolder, typed: str) -> str:
    """Return the name of the runnable setting that matches `typed`: `3f2a`, `batch 32, 2 processes` or `batch_size=32`.

    If none or several match, raises InputError with the closest setting as a suggestion.
    """
    settings = Manifest.read(folder.manifest).settings
    runnable = [setting for setting in settings if setting.unsupported is None]
    matching = [setting for setting in runnable if setting.name.startswith(typed)]
    matching = matching or [
        setting for setting in runnable if typed == label(setting.axes) or _has_values(setting, typed)
    ]
    if len(matching) == 1:
        return matching[0].name
    for setting in settings:
        if setting.name == typed and setting.unsupported is not None:
            raise InputError(f"setting {typed!r} of {folder.name!r} is unsupported: {setting.unsupported}")
    if matching:
        problem = f"matches several settings of {folder.name!r}"
    else:
        known = [text for setting in runnable for text in (setting.name, label(setting.axes))]
        problem = f"matches no runnable setting{nearest(typed, known)}; the runnable settings of {folder.name!r} are"
    listing = "; ".join(f"{setting.name} ({label(setting.axes)})" for setting in matching or runnable)
    raise InputError(f"{typed!r} {problem}: {listing}")


def _has_values(setting: PlannedSetting, typed: str) -> bool:
    """Return whether `typed` is one or more `KEY=VALUE`, separated by spaces or commas, that all match the setting."""
    wanted = [part.partition("=") for part in typed.replace(",", " ").split()]
    axes = {key: override_value(value) for key, value in setting.axes.items()}
    return bool(wanted) and all(axes.get(key) == value for key, _, value in wanted)
