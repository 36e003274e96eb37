"""A rank's raw steps on disk: every step's time, samples and loss, warm-up included, so that warm-up stays a view."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from accelsweep.measure.window import RankWindow

SCHEMA = pa.schema(
    [
        ("rank", pa.int32()),
        ("step", pa.int64()),
        ("phase", pa.string()),
        ("step_seconds", pa.float64()),
        ("samples", pa.int64()),
        ("train_loss", pa.float64()),
    ]
)
"""The columns of every steps file; `phase` is `warmup` or `window`, `train_loss` is null where a step gave none."""


def write_steps(path: Path, rank: int, window: RankWindow) -> None:
    """Write one row per step of `window`. The file appears whole: it is renamed into place."""
    count = len(window.step_seconds)
    warmup = window.warmup_steps
    columns = {
        "rank": [rank] * count,
        "step": list(range(count)),
        "phase": ["warmup"] * warmup + ["window"] * (count - warmup),
        "step_seconds": window.step_seconds,
        "samples": window.step_samples,
        "train_loss": window.losses,
    }
    temporary = path.with_name(f".{path.name}.part")
    pq.write_table(pa.table(columns, schema=SCHEMA), temporary, compression="zstd")
    temporary.replace(path)
