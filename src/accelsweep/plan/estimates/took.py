"""The time that earlier runs took, and what a further one will take by that.

A run of the same setting tells it best. Otherwise a run takes its window and the time beside it: start, warm-up, probe
pass, quality phase and end. Runs of the same task on the same kind of device tell that, those of this sweep first.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from itertools import pairwise
from statistics import fmean, median
from typing import NamedTuple

from accelsweep.core.cells.config import CellConfig
from accelsweep.core.planned.plans import Manifest, PlannedBlock, Resources, Run
from accelsweep.core.recorded.outcome import Outcome
from accelsweep.core.recorded.record import Record
from accelsweep.plan.blocks.resources import shortened
from accelsweep.state.folders import SweepFolder
from accelsweep.state.records import readable_records

ASSUMED_BESIDE_SECONDS = 2.0
"""The time of a run of one process beside its window, assumed until runs show it.

This and the next three are what the records of `reports/examples` took, rounded; a test compares them. Those are small
models on a processor.
"""

ASSUMED_PROCESS_SECONDS = 2.5
"""The further time of each further process of a run, which imports and joins the others, assumed until runs show it."""

ASSUMED_COMPILING_SECONDS = 13.0
"""The further time of a run with `model.compile=true`, whose caches begin empty, assumed until runs show it."""

ASSUMED_BETWEEN_SECONDS = 4.0
"""The time between two blocks, for a new supervisor, assumed until blocks show it."""

ASSUMED_AROUND_SECONDS = 15.0
"""The time of a command before its first block and after its last: Snakemake's start, the analysis and the report."""

_LONGEST_BREAK_SECONDS = 60.0
"""Blocks that lie further apart were measured by different commands."""

_Kind = tuple[str, str]
"""An accelerator and a task."""


class RunTime(NamedTuple):
    """A run's account of time: its setting and block, wall seconds, those beside its window, its start and end (s).

    A record holds a hundred times as much, and a sweep may have thousands. `beside` is None for a run without a window.
    """

    cell: str
    block: tuple[str, str]
    kind: _Kind
    wall: float
    beside: float | None
    start: float
    end: float

    @classmethod
    def of(cls, record: Record) -> RunTime | None:
        """Return the time of a run; None if it took none."""
        if record.outcome is Outcome.unsupported:
            return None
        over = max(0.0, record.wall_seconds - record.config.measure.min_seconds)
        beside = over if record.outcome is Outcome.measured else None
        start, end = _time(record.started_at), _time(record.finished_at)
        block = record.sweep, record.block
        return cls(record.cell, block, _kind(record.config), record.wall_seconds, beside, start, end)


class TimeLimits:
    """The time limits of a sweep's jobs: the planned ones, until each setting of a block was measured in this sweep."""

    def __init__(self, folder: SweepFolder, manifest: Manifest) -> None:
        """Reads a record when it is first asked for."""
        self._folder = folder
        self._runs: dict[str, list[str]] = defaultdict(list)
        for run in manifest.wanted_runs():
            self._runs[Run.parse(run).cell].append(run)
        self._longest: dict[str, float | None] = {}

    def of(self, block: PlannedBlock) -> Resources:
        """Return what a block's job asks for, its time limit by what runs of its settings took."""
        took = [self._longest_of(Run.parse(run).cell) for run in block.runs]
        known = [seconds for seconds in took if seconds is not None]
        return shortened(block.resources, known) if len(known) == len(took) else block.resources

    def _longest_of(self, cell: str) -> float | None:
        """Return the wall seconds of a setting's longest run so far."""
        if cell not in self._longest:
            walls = [record.wall_seconds for record in readable_records(self._folder, self._runs[cell])]
            self._longest[cell] = max(walls, default=None)
        return self._longest[cell]


@dataclass(frozen=True)
class Took:
    """The wall seconds of earlier runs by setting, and the seconds beside their windows by kind of run.

    `between` are the seconds from the end of one block to the beginning of the next. `basis` says whose runs they are.
    """

    basis: str = "assumed, until a first run has ended"
    runs: Mapping[str, Sequence[float]] = field(default_factory=dict)
    beside: Mapping[_Kind, Sequence[float]] = field(default_factory=dict)
    between: Sequence[float] = ()

    @classmethod
    def by(cls, times: Iterable[RunTime | None], basis: str) -> Took | None:
        """Return what the times of these runs show; None if none of them took time."""
        runs: dict[str, list[float]] = defaultdict(list)
        beside: dict[_Kind, list[float]] = defaultdict(list)
        timed = [time for time in times if time is not None]
        for one in timed:
            runs[one.cell].append(one.wall)
            if one.beside is not None:
                beside[one.kind].append(one.beside)
        return cls(basis, runs, beside, _between(timed)) if timed else None

    def seconds(self, cell: str, config: CellConfig) -> float:
        """Return the seconds that a further run of the setting `cell` will take."""
        if found := self.runs.get(cell):
            return fmean(found)
        beside = self.beside.get(_kind(config))
        return config.measure.min_seconds + (median(beside) if beside else _assumed_beside(config))

    @property
    def between_blocks(self) -> float:
        """The seconds before the first run of each block."""
        return median(self.between) if self.between else ASSUMED_BETWEEN_SECONDS


def _assumed_beside(config: CellConfig) -> float:
    compiling = ASSUMED_COMPILING_SECONDS * config.compiles
    return ASSUMED_BESIDE_SECONDS + ASSUMED_PROCESS_SECONDS * (config.world_size - 1) + compiling


def _kind(config: CellConfig) -> _Kind:
    return config.accelerator, config.task


def _between(timed: Sequence[RunTime]) -> list[float]:
    blocks: dict[tuple[str, str], list[float]] = defaultdict(list)
    for one in timed:
        blocks[one.block] += [one.start, one.end]
    spans = sorted((min(times), max(times)) for times in blocks.values())
    breaks = [later[0] - earlier[1] for earlier, later in pairwise(spans)]
    return [seconds for seconds in breaks if 0.0 <= seconds <= _LONGEST_BREAK_SECONDS]


def _time(text: str) -> float:
    return datetime.fromisoformat(text).timestamp()
