"""The progress of a sweep, read only from its files.

Safe to query at any time, from any machine that can access the files.
"""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence

from pydantic import Field

from accelsweep.config.setting import label
from accelsweep.errors import DamagedFile
from accelsweep.heartbeat import PROGRESS_FILE, HeartbeatReader, read_progress
from accelsweep.json_documents import Frozen
from accelsweep.records.early_decisions import decided_runs
from accelsweep.records.file_lock import is_live, read_lock
from accelsweep.records.layout import LOG_FILE, SweepFolder
from accelsweep.records.not_run_reasons import count_not_run_reasons
from accelsweep.records.plan import LockOwner, Manifest
from accelsweep.records.run_files import RunFolder
from accelsweep.records.run_record import Record
from accelsweep.results import Doubt, Outcome
from accelsweep.run_config import Run
from accelsweep.significant_digits import count_of

_LAST_DOUBTS = 5


def steps_done(folder: SweepFolder, run: str) -> int | None:
    """Return the number of steps that the current attempt at `run` has completed; None until it starts counting."""
    run_folder = RunFolder(folder.run(run), run)
    number = run_folder.latest()
    return read_progress(run_folder.attempt(number) / PROGRESS_FILE) if run_folder.is_open(number) else None


def progress_signature(folder: SweepFolder, run: str) -> tuple[int, ...]:
    """Return numbers, at least one of which changes whenever the current attempt at `run` makes progress.

    They are the attempt's number, its steps in the window and in the current phase, and the size of its log. Step
    counts that another machine writes through a memory map may not become visible on this machine.
    """
    run_folder = RunFolder(folder.run(run), run)
    number = run_folder.latest()
    attempt = run_folder.attempt(number)
    try:
        log_bytes = (attempt / LOG_FILE).stat().st_size
    except OSError:
        log_bytes = 0
    steps = read_progress(attempt / PROGRESS_FILE) or 0
    return number, steps, HeartbeatReader(attempt / "heartbeat-0").steps, log_bytes


class LockedBlock(LockOwner):
    """A block whose executor is running, or died without releasing its lock."""

    alive: bool = Field(description="whether the executor is alive")
    label: str | None = Field(description="a readable description of its run's setting")
    step: int | None = Field(description="the number of steps that the run has completed")


class RunDoubt(Frozen):
    """A doubt about one run."""

    run: str = Field(description="the run's name")
    label: str = Field(description="a readable description of its setting")
    repeat: int = Field(description="the zero-based index of the run within its setting")
    doubt: Doubt = Field(description="the doubt")


class SweepStatus(Frozen):
    """The state of a sweep's runs."""

    sweep: str = Field(description="the sweep's name")
    revision: int = Field(description="the revision of its plan")
    planned: int = Field(description="the number of runs in the plan")
    settled: int = Field(description="the number of settled runs")
    remaining: int = Field(description="the number of runs that are not settled")
    outcomes: dict[Outcome, int] = Field(description="the number of runs by outcome")
    outdated: dict[str, int] = Field(description="the number of settled runs to measure again, by what has changed")
    seconds_left: float | None = Field(description="the estimated duration of the remaining runs; null if unknown")
    running: tuple[LockedBlock, ...] = Field(description="the blocks that are being measured")
    kept: dict[str, int] = Field(description="the number of runs without a record, by reason")
    doubts: tuple[RunDoubt, ...] = Field(description="the last few doubts")
    damaged: tuple[str, ...] = Field(description="the records that cannot be read, and the reasons")


def status(
    folder: SweepFolder, manifest: Manifest, why_outdated: Callable[[Record], str | None] = lambda _: None
) -> SweepStatus:
    """Return the state of the sweep with the given plan.

    `why_outdated` returns what has changed since a settled run was measured, or None if its record is reusable.
    """
    records, damaged = [], []
    for run in manifest.wanted_runs():
        try:
            record = RunFolder(folder.run(run), run).record()
        except DamagedFile as error:
            damaged.append(str(error))
            continue
        if record is not None:
            records.append(record)
    recorded, wanted = {record.run for record in records}, manifest.wanted_runs()
    decided = decided_runs(folder, manifest).keys() - recorded
    planned, settled = len(wanted), sum(record.outcome.settled for record in records) + len(decided)
    outcomes = Counter(record.outcome for record in records)
    if decided:
        outcomes[Outcome.decided] = len(decided)
    labels = {setting.name: label(setting.axes) for setting in manifest.settings}
    latest = sorted(records, key=lambda record: record.finished_at, reverse=True)
    doubts = [
        RunDoubt(run=record.run, label=labels.get(record.setting, record.setting), repeat=record.repeat, doubt=doubt)
        for record in latest
        for doubt in record.doubts
    ]
    return SweepStatus(
        sweep=folder.name,
        revision=manifest.revision,
        planned=planned,
        settled=settled,
        remaining=planned - settled,
        outcomes=dict(sorted(outcomes.items())),
        outdated=dict(Counter(filter(None, map(why_outdated, records))).most_common()),
        seconds_left=_seconds_left(records, planned - settled),
        running=tuple(_locked_blocks(folder, manifest, labels)),
        kept=dict(count_not_run_reasons(folder, manifest)),
        doubts=tuple(doubts[:_LAST_DOUBTS]),
        damaged=tuple(damaged),
    )


def outdated_text(outdated: Mapping[str, int]) -> str:
    """Return `4 results no longer count: the code changed (my_model)` for `SweepStatus.outdated`; "" if it is empty."""
    if not outdated:
        return ""
    first, *others = outdated
    counted = count_of(sum(outdated.values()), "result")
    return f"{counted} no longer count{'s' if counted == '1 result' else ''}: {first}{', and more' * bool(others)}"


def _seconds_left(records: Sequence[Record], remaining: int) -> float | None:
    seconds = [record.total_seconds for record in records if record.outcome is not Outcome.unsupported]
    return remaining * statistics.fmean(seconds) if seconds and remaining else None


def _locked_blocks(folder: SweepFolder, manifest: Manifest, labels: Mapping[str, str]) -> Iterator[LockedBlock]:
    for block in manifest.blocks:
        path = folder.lock(block.name)
        if (owner := read_lock(path)) is not None:
            yield LockedBlock(
                **dict(owner),
                alive=is_live(owner, path),
                label=labels.get(Run.parse(owner.run).setting, owner.run) if owner.run else None,
                step=steps_done(folder, owner.run) if owner.run else None,
            )
