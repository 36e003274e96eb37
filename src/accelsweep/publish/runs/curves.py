"""A run's steps after warm-up as curves with a bounded number of points, for MLflow's charts.

Every point stands for a bucket of consecutive steps. Its rate is all samples of the bucket over the time of its slowest
ranks. Its loss is the mean of the losses read. The points carry the number of the bucket's last step.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow
import pyarrow.parquet as parquet

from accelsweep.publish.runs.wanted import HistoryPoint

MAX_POINTS = 100

_COLUMNS = ["step", "phase", "step_seconds", "samples", "train_loss"]


def curves(steps: Path, started: int, max_points: int = MAX_POINTS) -> tuple[HistoryPoint, ...]:
    """Return the curves `curve/samples_per_second` (1/s) and `curve/train_loss` of a run's steps.parquet.

    A point's time is `started` (milliseconds since 1970) plus the time of the steps before it: cold costs are left out.
    Returns nothing where the file is absent, cannot be read or holds no step of the window.
    """
    try:
        table = parquet.read_table(steps, columns=_COLUMNS)
    except (OSError, pyarrow.ArrowException):
        return ()
    step = table["step"].to_numpy()
    if not len(step):
        return ()
    seconds, samples, losses = _per_step(table, step)
    numbers = np.flatnonzero(np.isin(np.arange(len(seconds)), np.unique(step[table["phase"].to_numpy() == "window"])))
    if not len(numbers):
        return ()
    elapsed = started + np.cumsum(seconds) * 1000
    points: list[HistoryPoint] = []
    for bucket in np.array_split(numbers, min(max_points, len(numbers))):
        last, when = int(bucket[-1]), int(elapsed[bucket[-1]])
        if (duration := float(seconds[bucket].sum())) > 0:
            points.append(HistoryPoint("curve/samples_per_second", float(samples[bucket].sum()) / duration, last, when))
        if len(read := losses[bucket][np.isfinite(losses[bucket])]):
            points.append(HistoryPoint("curve/train_loss", float(read.mean()), last, when))
    return tuple(points)


def _per_step(table: parquet.Table, step: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return, per step, the slowest rank's seconds, the samples of all ranks and the mean of their finite losses."""
    count = int(step.max()) + 1
    seconds, samples = np.zeros(count), np.zeros(count)
    np.maximum.at(seconds, step, table["step_seconds"].to_numpy())
    np.add.at(samples, step, table["samples"].to_numpy())
    loss = table["train_loss"].to_numpy(zero_copy_only=False).astype(float)
    finite = np.isfinite(loss)
    sums, reads = np.zeros(count), np.zeros(count)
    np.add.at(sums, step[finite], loss[finite])
    np.add.at(reads, step[finite], 1)
    return seconds, samples, np.divide(sums, reads, out=np.full(count, np.nan), where=reads > 0)
