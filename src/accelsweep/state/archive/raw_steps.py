"""The raw steps in an archive: a table that unpacks to more than any run leaves is refused before it is read whole.

Parquet packs a column of equal values into a few bytes, so the size of its file says little.
"""

from __future__ import annotations

from io import BytesIO

import pyarrow as pa
import pyarrow.parquet as pq

MOST_STEP_ROWS = 5_000_000
"""Rows of one run's table: steps times ranks. Measuring windows are far shorter."""

_PHASES = frozenset({"warmup", "window"})


def excess(content: bytes) -> str | None:
    """Return why the table in `content` is more than a run's steps, or None if it is not.

    A file that is no table at all is none of these: readers of steps leave it out, here as where it was packed.
    """
    try:
        found = pq.ParquetFile(BytesIO(content), read_dictionary=["phase"])
        if found.metadata.num_rows > MOST_STEP_ROWS:
            return f"it has {found.metadata.num_rows} rows, and the most is {MOST_STEP_ROWS}"
        if "phase" not in found.schema_arrow.names:
            return None
        phases = {phase for chunk in found.read(["phase"]).column("phase").chunks for phase in _values(chunk)}
    except (pa.ArrowException, OSError):
        return None
    return None if phases <= _PHASES else "it names phases that no run has"


def _values(chunk: pa.Array) -> list[object]:
    """Return the different values of a column's piece, each once, however many rows it has."""
    values: list[object] = chunk.dictionary.to_pylist() if isinstance(chunk, pa.DictionaryArray) else [None]
    return values
