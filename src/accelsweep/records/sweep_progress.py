"""The state of a sweep, from its files alone: planned, done by outcome, running (host and start), remaining.

Safe to call at any time and from any machine that sees the files: nothing is changed, nothing is waited for.
"""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from accelsweep.errors import DamagedFile
from accelsweep.heartbeat import PROGRESS_FILE, HeartbeatReader, read_progress
from accelsweep.records.file_lock import living, read_hold
from accelsweep.records.layout import LOG_FILE, SweepFolder
from accelsweep.records.plan import Hold, Manifest
from accelsweep.records.run_files import RunFolder
from accelsweep.records.run_record import Record
from accelsweep.records.stop_reasons import reasons_not_run
from accelsweep.results import Doubt, Outcome


def steps_done(folder: SweepFolder, run: str) -> int | None:
    """Return the number of steps that the present attempt at `run` has done; None where none has begun to count."""
    place = RunFolder(folder.run(run), run)
    number = place.latest()
    return read_progress(place.attempt(number) / PROGRESS_FILE) if place.is_open(number) else None


def signs_of(folder: SweepFolder, run: str) -> tuple[int, ...]:
    """Return numbers of which one changes whenever the present attempt at `run` moves.

    They are the attempt's, the steps in the window and in the present phase, and the bytes in its log. Steps that
    another machine has mapped into its memory may not be seen here.
    """
    place = RunFolder(folder.run(run), run)
    number = place.latest()
    attempt = place.attempt(number)
    try:
        log_bytes = (attempt / LOG_FILE).stat().st_size
    except OSError:
        log_bytes = 0
    return (
        number,
        read_progress(attempt / PROGRESS_FILE) or 0,
        HeartbeatReader(attempt / "heartbeat-0").steps,
        log_bytes,
    )


@dataclass(frozen=True)
class WorkedBlock:
    """A block with a supervisor at work, or with one that ended without giving its hold back."""

    hold: Hold
    alive: bool
    step: int | None


@dataclass(frozen=True)
class Status:
    """A sweep at one moment. `seconds_left` is a rough guess from the runs that took time, None before one ended.

    `records` are those of the wanted runs, in plan order; `doubts` are the last few, each with its run's name. `kept`
    counts the runs without a record by what kept them from it.
    """

    sweep: str
    planned: int
    outcomes: Mapping[Outcome, int]
    running: tuple[WorkedBlock, ...]
    remaining: int
    seconds_left: float | None
    records: tuple[Record, ...]
    doubts: tuple[tuple[str, Doubt], ...]
    damaged: tuple[DamagedFile, ...]
    kept: Mapping[str, int]


def status(folder: SweepFolder, *, last_doubts: int = 5) -> Status:
    """Return the state of the sweep. Raises DamagedFile or FileNotFoundError if its manifest cannot be read."""
    manifest = Manifest.read(folder.manifest)
    records, damaged = [], []
    for run in manifest.wanted_runs():
        try:
            record = RunFolder(folder.run(run), run).record()
        except DamagedFile as error:
            damaged.append(error)
            continue
        if record is not None:
            records.append(record)
    outcomes = Counter(record.outcome for record in records)
    remaining = len(manifest.wanted_runs()) - sum(record.outcome.settled for record in records)
    latest = sorted(records, key=lambda record: record.finished_at, reverse=True)
    doubts = [(record.run, doubt) for record in latest for doubt in record.doubts]
    return Status(
        sweep=folder.name,
        planned=len(manifest.wanted_runs()),
        outcomes=outcomes,
        running=tuple(_running(folder, manifest)),
        remaining=remaining,
        seconds_left=_seconds_left(records, remaining),
        records=tuple(records),
        doubts=tuple(doubts[:last_doubts]),
        damaged=tuple(damaged),
        kept=reasons_not_run(folder, manifest),
    )


def _seconds_left(records: Sequence[Record], remaining: int) -> float | None:
    took = [
        record.wall_seconds for record in records if record.outcome is not Outcome.unsupported
    ]  # those take no time
    return remaining * statistics.fmean(took) if took else None


def _running(folder: SweepFolder, manifest: Manifest) -> Iterator[WorkedBlock]:
    for block in manifest.blocks:
        path = folder.hold(block.name)
        hold = read_hold(path)
        if hold is not None:
            step = steps_done(folder, hold.run) if hold.run else None
            yield WorkedBlock(hold, living(hold, path), step)
