"""The state of a sweep, from its files alone: planned, done by outcome, running (host and start), remaining.

Safe to call at any time and from any machine that sees the files: nothing is changed, nothing is waited for.
"""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from accelsweep.base.errors import DamagedFile
from accelsweep.core.planned.plans import Hold, Manifest
from accelsweep.core.recorded.outcome import Outcome
from accelsweep.core.recorded.record import Doubt, Record
from accelsweep.state.attempts import RunFolder
from accelsweep.state.folders import SweepFolder
from accelsweep.state.halts import reasons_not_run
from accelsweep.state.living import living, read_hold
from accelsweep.state.progress import steps_done


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
