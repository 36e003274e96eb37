"""Reads records, steps and blocks, and manages run folders.

The latest record is at the top level of a run's folder, and its attempts are in `attempts/N/`.

An attempt works in its own folder, which contains `started.json` until the attempt ends without killing its executor.
Once its record is complete, any earlier record is moved down into the folder of the attempt that produced it, and the
new files are moved up to the top level, the record last. Every move is repeatable, so nothing is lost if the process is
killed between two moves.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from pydantic import TypeAdapter, ValidationError

from accelsweep.config.setting import shared_devices
from accelsweep.errors import DamagedFile, InputError
from accelsweep.files import read_regular, remove, set_aside
from accelsweep.json_documents import Document, first_error
from accelsweep.records.layout import (
    ATTEMPTS_FOLDER,
    LOG_FILE,
    RECORD_FILE,
    SERIES_FILE,
    STARTED_FILE,
    STEPS_FILE,
    SweepFolder,
)
from accelsweep.records.plan import Block, Manifest
from accelsweep.records.run_record import EarlierAttempt, Record, steps_damage
from accelsweep.results import RankResult
from accelsweep.run_config import Run, SettingConfig

if TYPE_CHECKING:
    import pyarrow as pa


# Records: read strictly, or leniently if a missing or damaged record does not matter.


def read_record(folder: SweepFolder, run: str) -> Record:
    """Return the record of the run named `run`.

    Raises DamagedFile for a damaged record or one that belongs to another run or setting, and FileNotFoundError if
    there is none.
    """
    return read_record_at(folder.record(run), run)


def record_or_none(folder: SweepFolder, run: str) -> Record | None:
    """Return the record of the run named `run`, or None if there is no usable one."""
    with suppress(DamagedFile, FileNotFoundError):
        return read_record(folder, run)
    return None


def readable_records(folder: SweepFolder, runs: Iterable[str]) -> Iterator[Record]:
    """Yield the usable records of the `runs`."""
    return (record for run in runs if (record := record_or_none(folder, run)) is not None)


def read_record_at(path: Path, run: str) -> Record:
    """Return the run's record at `path`, which may be that of an earlier attempt.

    Raises the same errors as `read_record`.
    """
    return check_record(Record.read(path), path, run)


def check_record(record: Record, path: Path, run: str) -> Record:
    """Return `record`, read from `path`; raise DamagedFile if it is not a record of the run named `run`."""
    if record.run != run:
        raise DamagedFile(path, f"it is the record of another run, {record.run!r}")
    if record.setting != Run.parse(run).setting:
        raise DamagedFile(path, f"it is the record of another setting, {record.setting!r}")
    return record


def read_steps(steps: Path, record: Path, run: str, columns: list[str] | None = None) -> pa.Table:
    """Return the raw steps of the run named `run` from the file `steps`, with the given `columns` or all columns.

    The checksum of the steps is in the record at the path `record`; if there is no record, the steps are not verified.
    Raises DamagedFile if the record or the table is damaged; FileNotFoundError if there is no table.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    if record.exists() and (damage := steps_damage(read_record_at(record, run), steps)) is not None:
        raise damage
    try:
        # `read_table` would import pandas, and pyarrow's data sets
        table = pq.ParquetFile(steps).read(columns)
    except FileNotFoundError:
        raise
    except (pa.ArrowException, OSError) as error:  # pyarrow raises OSError for a corrupt page
        raise DamagedFile(steps, f"it is not a table of steps ({error})") from None
    if missing := set(columns or ()) - set(table.column_names):
        raise DamagedFile(steps, f"it is a table of steps without {', '.join(sorted(missing))}")
    return table


_RANK_RESULT = TypeAdapter(RankResult)


def read_rank_result(path: Path) -> RankResult:
    """Return a rank's validated result. Raises DamagedFile, or FileNotFoundError if there is none."""
    try:
        return _RANK_RESULT.validate_json(read_regular(path))
    except ValidationError as error:
        raise DamagedFile(path, f"it is not a rank's result: {first_error(error)}") from None


# The folder of a run.

_RESULTS = (
    LOG_FILE,
    SERIES_FILE,
    STEPS_FILE,
    RECORD_FILE,
)  # always moved in this order: the record contains the steps' checksum

_REOPENED = "reopened"


class Started(Document):
    """The marker of an attempt that is not known to have ended, with its executor, host and start time.

    `job_log` is the file in which Slurm reports the end of the executor's job.
    """

    kind: ClassVar[str] = "started"

    run: str
    attempt: int
    host: str
    pid: int
    started_at: str
    job_log: str | None = None


class RunFolder:
    """The folder of the run named `name`."""

    def __init__(self, path: Path, name: str) -> None:
        self.path = path
        self.name = name

    def attempt(self, number: int) -> Path:
        """Return the folder of attempt `number` (one-based)."""
        return self.path / ATTEMPTS_FOLDER / str(number)

    def record_file(self, number: int) -> Path:
        """Return the path of the attempt's record."""
        return self.attempt(number) / RECORD_FILE

    def steps_file(self, number: int) -> Path:
        """Return the path of the attempt's raw step times."""
        return self.attempt(number) / STEPS_FILE

    def series_file(self, number: int) -> Path:
        """Return the path of what the machine did during the attempt."""
        return self.attempt(number) / SERIES_FILE

    def log_file(self, number: int) -> Path:
        """Return the path of the attempt's log."""
        return self.attempt(number) / LOG_FILE

    def latest(self) -> int:
        """Return the number of the latest attempt, or 0 if there is none."""
        folder = self.path / ATTEMPTS_FOLDER
        return max((int(path.name) for path in folder.glob("*") if path.name.isdigit()), default=0)

    def record(self) -> Record | None:
        """Return the run's record, or None if there is none.

        Raises DamagedFile if it is damaged or belongs to another run.
        """
        return self._read(self.path / RECORD_FILE)

    def _read(self, path: Path) -> Record | None:
        try:
            return read_record_at(path, self.name)
        except FileNotFoundError:
            return None

    def recover(self) -> list[DamagedFile]:
        """Set damaged records aside and finish interrupted moves; return the damaged files."""
        damaged = []
        for path in (self.path / RECORD_FILE, self.record_file(self.latest())):
            try:
                self._read(path)
            except DamagedFile as error:
                aside = set_aside(error.path)
                damaged.append(DamagedFile(error.path, f"{error.reason}; set aside as {aside.name}"))
        self.promote_latest()
        return damaged

    def promote_latest(self) -> None:
        """Make the latest attempt that has a record the run's result, unless it already is or has been reopened."""
        for number in reversed(range(self._recorded() + 1, self.latest() + 1)):
            if self._was_reopened(number):
                break
            if self.record_file(number).exists():
                self.promote(number)
                break

    def begin(self, host: str, started_at: str, job_log: str | None = None) -> int:
        """Create the folder of a new attempt, mark it as started, and return the attempt's number.

        If there is no record, any other result files are first moved down to the previous attempt's folder. `job_log`
        is the log of the attempt's Slurm job.
        """
        number = max(self.latest(), self._recorded()) + 1
        if self.record() is None:
            self._move_down(number - 1)
        folder = self.attempt(number)
        folder.mkdir(parents=True)
        mark = Started(
            run=self.name, attempt=number, host=host, pid=os.getpid(), started_at=started_at, job_log=job_log
        )
        mark.write(folder / STARTED_FILE)
        return number

    def close(self, number: int) -> None:
        """Record that attempt `number` ended without killing its executor."""
        remove(self.attempt(number) / STARTED_FILE)

    def discard_half_written(self, number: int) -> None:
        """Remove files that ranks of attempt `number` were writing when killed; call this only once all are dead."""
        for part in self.attempt(number).glob(".*.part"):
            part.unlink(missing_ok=True)

    def earlier_attempts(self, number: int) -> tuple[EarlierAttempt, ...]:
        """Return the attempts before attempt `number`, with the reason why each of them was not the last."""
        unrecorded: list[EarlierAttempt] = []
        for earlier in reversed(range(1, number)):
            if (record := self._attempt_record(earlier)) is not None:
                found = record.as_earlier_attempt(reopened=self._was_reopened(earlier))
                return (*record.earlier_attempts, found, *reversed(unrecorded))
            reason = "its executor died" if self.is_open(earlier) else "interrupted"
            unrecorded.append(EarlierAttempt(attempt=earlier, reason=reason))
        return tuple(reversed(unrecorded))

    def disturbed_attempts(self) -> int:
        """Return how many attempts in a row, up to the latest one, were disturbed and have not been reopened."""
        count = 0
        for number in reversed(range(1, self.latest() + 1)):
            record = self._attempt_record(number)
            if record is None or record.disturbance is None or self._was_reopened(number):
                break
            count += 1
        return count

    def _attempt_record(self, number: int) -> Record | None:
        """Return the record of attempt `number`, wherever it is; None if there is no usable one."""
        for path in (self.record_file(number), self.path / RECORD_FILE):
            with suppress(DamagedFile):
                if (record := self._read(path)) is not None and record.attempt == number:
                    return record
        return None

    def _was_reopened(self, number: int) -> bool:
        return (self.attempt(number) / _REOPENED).exists()

    def is_open(self, number: int) -> bool:
        """Return whether attempt `number` is running or killed its executor."""
        return (self.attempt(number) / STARTED_FILE).exists()

    def fatal_attempts(self) -> list[int]:
        """Return the numbers of attempts after the recorded one whose executors died before recording their end."""
        numbers = range(self._recorded() + 1, self.latest() + 1)
        return [number for number in numbers if self.is_open(number)]

    def job_log(self, number: int) -> str | None:
        """Return the log of the Slurm job in which attempt `number` killed its executor, if known."""
        with suppress(FileNotFoundError, DamagedFile):
            return Started.read(self.attempt(number) / STARTED_FILE).job_log
        return None

    def reopen(self) -> bool:
        """Move the record down to its attempt's folder and disregard fatal attempts, so that the run is measured again.

        Returns whether there was a record. Its attempt is first marked as reopened, which keeps `recover` from moving
        the record back up.
        """
        number = self._recorded()
        self._close_all(self.latest())
        if number:
            self.attempt(number).mkdir(parents=True, exist_ok=True)
            (self.attempt(number) / _REOPENED).touch()
            self._move_down(number)
        return number > 0

    def promote(self, number: int) -> None:
        """Make the finished attempt `number` the run's result, and keep the earlier result in its own attempt's folder.

        The run has ended, so earlier attempts that killed their executor no longer count.
        """
        if 0 < self._recorded() < number:  # files without a record are this attempt's: a kill interrupted the move
            self._move_down(self._recorded())
        for name in _RESULTS:
            with suppress(FileNotFoundError):
                (self.attempt(number) / name).replace(self.path / name)
        self._close_all(number)

    def _close_all(self, last: int) -> None:
        for number in range(1, last + 1):
            self.close(number)

    def _move_down(self, number: int) -> None:
        for name in _RESULTS:
            if (self.path / name).exists():
                self.attempt(number).mkdir(parents=True, exist_ok=True)
                (self.path / name).replace(self.attempt(number) / name)

    def _recorded(self) -> int:
        record = self.record()
        return 0 if record is None else record.attempt


# Blocks of a plan: read strictly for one setting, leniently for all.


def block_of(folder: SweepFolder, manifest: Manifest, setting: str) -> Block:
    """Return the first block that contains `setting`, with its frozen config and the values on its axes.

    Raises InputError if no block contains the setting, and DamagedFile if no readable block does.
    """
    damage = None
    for planned in manifest.blocks:
        try:
            block = _read(folder, planned.name)
        except DamagedFile as error:
            damage = damage or error
            continue
        if setting in block.configs:
            return block
    if damage is None:
        raise InputError(f"no block of sweep {folder.name!r} contains setting {setting!r}")
    why = f"{damage.reason}; no other block contains setting {setting!r}. Repeat `accelsweep run` to recreate it"
    raise DamagedFile(damage.path, why)


def block_or_none(folder: SweepFolder, name: str) -> Block | None:
    """Return the block named `name`, or None if there is no usable one."""
    with suppress(DamagedFile):
        return _read(folder, name)
    return None


def readable_blocks(folder: SweepFolder, manifest: Manifest) -> Iterator[Block]:
    """Yield the usable blocks of the plan, in plan order."""
    return (block for planned in manifest.blocks if (block := block_or_none(folder, planned.name)) is not None)


def readable_configs(folder: SweepFolder, manifest: Manifest) -> dict[str, SettingConfig]:
    """Return the settings' configs, keyed by name; configs found only in damaged blocks are omitted."""
    configs: dict[str, SettingConfig] = {}
    runnable = {setting.name for setting in manifest.settings if setting.unsupported is None}
    for block in readable_blocks(folder, manifest):
        configs |= block.configs
        if configs.keys() >= runnable:
            break
    return configs


def shared_devices_of(folder: SweepFolder, manifest: Manifest) -> str:
    """Return the sweep's `shared_devices`, from its first readable block; "" if there is none."""
    block = next(readable_blocks(folder, manifest), None)
    return "" if block is None else shared_devices(manifest.axes, block.configs.values())


def _read(folder: SweepFolder, name: str) -> Block:
    path = folder.block(name)
    try:
        return Block.read(path)
    except FileNotFoundError:
        raise DamagedFile(path, "it is missing") from None
