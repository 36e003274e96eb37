"""The ways to read records: strictly, or leniently where a missing or damaged one is no news.

All make sure that a record belongs to the run in whose folder it lies. No other module reads a record's file.
`state.attempts` reads those of attempts by the strict way. The step times that a record seals are read here too.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from accelsweep.base.errors import DamagedFile
from accelsweep.core.planned.plans import Run
from accelsweep.core.recorded.record import Record, steps_damage
from accelsweep.state.folders import SweepFolder

if TYPE_CHECKING:
    import pyarrow as pa


def read_record(folder: SweepFolder, run: str) -> Record:
    """Return the record of the run named `run`.

    Raises DamagedFile, also for the record of another run or cell; FileNotFoundError where there is none.
    """
    return read_record_at(folder.record(run), run)


def record_or_none(folder: SweepFolder, run: str) -> Record | None:
    """Return the record of the run named `run`, or None where there is none that can be used."""
    with suppress(DamagedFile, FileNotFoundError):
        return read_record(folder, run)
    return None


def readable_records(folder: SweepFolder, runs: Iterable[str]) -> Iterator[Record]:
    """Yield the usable records of the `runs`."""
    return (record for run in runs if (record := record_or_none(folder, run)) is not None)


def read_record_at(path: Path, run: str) -> Record:
    """Return the record at `path`, which may be that of an earlier attempt. Raises as `read_record` does."""
    return own_record(Record.read(path), path, run)


def own_record(record: Record, path: Path, run: str) -> Record:
    """Return `record`, which was read from `path`; raise DamagedFile if it is not of the run named `run`."""
    if record.run != run:
        raise DamagedFile(path, f"it is the record of another run, {record.run!r}")
    if record.cell != Run.parse(run).cell:
        raise DamagedFile(path, f"it is the record of another setting, {record.cell!r}")
    return record


def read_steps(steps: Path, record: Path, run: str, columns: list[str] | None = None) -> pa.Table:
    """Return the table at `steps` of the run named `run`, whose record is at `record`: these `columns`, or all.

    Nothing seals the table where there is no record. Raises DamagedFile where the record or the table is damaged;
    FileNotFoundError where there is no table.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    if record.exists() and (damage := steps_damage(read_record_at(record, run), steps)) is not None:
        raise damage
    try:
        return pq.read_table(steps, columns=columns)
    except FileNotFoundError:
        raise
    except (pa.ArrowException, OSError, KeyError) as error:  # pyarrow calls a page that it cannot unpack an OSError
        raise DamagedFile(steps, f"it is no table of steps ({error})") from None
