"""The state of a sweep, from its files alone: planned, done by outcome, running (host and start), remaining.

Safe to call at any time and from any machine that sees the files: nothing is changed, nothing is waited for.
"""

from __future__ import annotations

import errno
import mmap
import os
import statistics
import struct
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from accelsweep.errors import DamagedFile
from accelsweep.files import read_regular
from accelsweep.records.file_lock import living, read_hold
from accelsweep.records.layout import LOG_FILE, PROGRESS_FILE, SweepFolder
from accelsweep.records.plan import Hold, Manifest
from accelsweep.records.run_files import RunFolder
from accelsweep.records.run_record import Doubt, Outcome, Record
from accelsweep.records.stop_reasons import reasons_not_run

# A rank's sign of life: the steps of its present phase, in mapped memory that its supervisor reads.

_NO_MAPS = frozenset({errno.ENODEV, errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP})
"""What file systems answer that have no shared memory maps, such as 9p, and FUSE with direct input and output."""


def shared_memory(file: int, size: int) -> mmap.mmap | bytearray:
    """Return the first `size` bytes of an open file as memory; on a disk without shared maps, memory of our own.

    What is written to the latter nobody sees. A system call for each step would cost more than such a sign is worth.
    """
    try:
        return mmap.mmap(file, size)
    except OSError as error:
        if error.errno not in _NO_MAPS:
            raise
        return bytearray(size)


_PULSE = struct.Struct("<qq")  # process id, for whoever looks; steps since the last rest, 0 for a rest


class Pulse:
    """The writer's side. `beat` is a write to memory, without a system call; without a path nobody hears it."""

    def __init__(self, path: Path | None = None) -> None:
        """Make the file, at rest, or take an earlier phase's over. Raises OSError where there is no room for it.

        On a disk without shared memory maps the rank stays at rest for all who listen.
        """
        self._process, self._steps = os.getpid(), 0
        self._memory: mmap.mmap | bytearray = bytearray(_PULSE.size)
        if path is not None:
            file = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
            try:
                os.pwrite(file, _PULSE.pack(self._process, 0), 0)  # a hole could not be filled once the disk is full
                self._memory = shared_memory(file, _PULSE.size)
            finally:
                os.close(file)

    def beat(self, *, rests: bool = False) -> None:
        """Say that a step is done. It `rests` where something else than a step follows."""
        self._steps = 0 if rests else self._steps + 1
        _PULSE.pack_into(self._memory, 0, self._process, self._steps)

    def rest(self) -> None:
        """Say that something else than a step follows, which may take any time."""
        self.beat(rests=True)


class Heard:
    """The reader's side: it asks the file system until the file is there, and then only memory."""

    def __init__(self, path: Path) -> None:
        """`path` need not exist yet."""
        self._path = path
        self._memory: mmap.mmap | None = None

    @property
    def steps(self) -> int:
        """The steps since the rank last rested; 0 while it rests, and before its first sign."""
        if self._memory is None:
            try:
                with self._path.open("rb") as file:
                    self._memory = mmap.mmap(file.fileno(), _PULSE.size, access=mmap.ACCESS_READ)
            except (OSError, ValueError):  # not there yet, or still empty
                return 0
        _, steps = _PULSE.unpack_from(self._memory)
        return int(steps)


# The number of finished steps, shared with the supervisor through eight bytes of mapped memory.

_COUNT = struct.Struct("<q")


class StepCount:
    """Call it with the number of finished steps; readers of the file see it at once, without a system call here."""

    def __init__(self, path: Path) -> None:
        """Make the file, with 0 in it, which it keeps on a disk without shared memory maps."""
        path.write_bytes(_COUNT.pack(0))
        with path.open("r+b") as file:
            self._memory = shared_memory(file.fileno(), _COUNT.size)

    def __call__(self, steps: int) -> None:
        """Show `steps` finished steps."""
        _COUNT.pack_into(self._memory, 0, steps)


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
    return number, read_progress(attempt / PROGRESS_FILE) or 0, Heard(attempt / "pulse-0").steps, log_bytes


def read_progress(path: Path) -> int | None:
    """Return the number of finished steps that the file at `path` shows; None where there is no such file (yet)."""
    try:
        content = read_regular(path)
    except (FileNotFoundError, DamagedFile):
        return None
    return int(_COUNT.unpack(content)[0]) if len(content) == _COUNT.size else None


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
