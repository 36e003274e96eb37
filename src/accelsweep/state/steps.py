"""A run's raw step times, which are not used where they differ from those that its record seals."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from accelsweep.base.errors import DamagedFile
from accelsweep.core.recorded.record import steps_damage
from accelsweep.state.records import read_record_at


def read_steps(steps: Path, record: Path, run: str, columns: list[str] | None = None) -> pa.Table:
    """Return the table at `steps` of the run named `run`, whose record is at `record`: these `columns`, or all.

    Nothing seals the table where there is no record. Raises DamagedFile where the record or the table is damaged;
    FileNotFoundError where there is no table.
    """
    if record.exists() and (damage := steps_damage(read_record_at(record, run), steps)) is not None:
        raise damage
    try:
        return pq.read_table(steps, columns=columns)
    except FileNotFoundError:
        raise
    except (pa.ArrowException, OSError, KeyError) as error:  # pyarrow calls a page that it cannot unpack an OSError
        raise DamagedFile(steps, f"it is no table of steps ({error})") from None
