"""The curves of a repeat: steps after warm-up only, all ranks together, a bounded number of points."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as parquet
import pytest
from mutations import odd_integers

from accelsweep.results import LearningCurve, LearningPoint
from accelsweep.tracking.mlflow_run import MetricPoint
from accelsweep.tracking.repeat_runs import curves, learning_curves, system_metrics


def write_steps(path: Path, rows: list[tuple[int, int, str, float, int, float | None]]) -> Path:
    """Write (rank, step, phase, step_seconds, samples, train_loss) rows as a steps.parquet."""
    names = ["rank", "step", "phase", "step_seconds", "samples", "train_loss"]
    types = [pa.int32(), pa.int64(), pa.string(), pa.float64(), pa.int64(), pa.float64()]
    columns = [pa.array(column, kind) for column, kind in zip(zip(*rows, strict=True), types, strict=True)]
    parquet.write_table(pa.table(dict(zip(names, columns, strict=True))), path)
    return path


def test_a_point_has_all_samples_divided_by_the_time_of_the_slowest_rank(tmp_path: Path) -> None:
    steps = write_steps(
        tmp_path / "steps.parquet",
        [
            (0, 0, "warmup", 9.0, 4, 5.0),
            (1, 0, "warmup", 9.5, 4, None),
            (0, 1, "window", 1.0, 4, 3.0),
            (1, 1, "window", 2.0, 4, None),
            (0, 2, "window", 4.0, 4, 1.0),
            (1, 2, "window", 2.0, 4, None),
        ],
    )
    points = curves(steps, started=1000)
    assert [(point.name, point.value, point.step, point.timestamp) for point in points] == [
        ("curve/samples_per_second", 4.0, 1, 12500),
        ("curve/train_loss", 3.0, 1, 12500),
        ("curve/samples_per_second", 2.0, 2, 16500),
        ("curve/train_loss", 1.0, 2, 16500),
    ]


def test_many_steps_become_few_points_that_keep_the_total(tmp_path: Path) -> None:
    rows = [(0, step, "window", 0.5, 2, float(step)) for step in range(1000)]
    points = curves(write_steps(tmp_path / "steps.parquet", rows), started=0, max_points=10)
    rates = [point for point in points if point.name == "curve/samples_per_second"]
    assert [(point.step, point.value) for point in rates] == [(99 + 100 * k, 4.0) for k in range(10)]
    losses = [point.value for point in points if point.name == "curve/train_loss"]
    assert losses == pytest.approx([49.5 + 100 * k for k in range(10)])


def test_a_missing_or_non_finite_loss_leaves_a_gap(tmp_path: Path) -> None:
    rows = [(0, step, "window", 1.0, 1, loss) for step, loss in enumerate((2.0, None, float("nan"), float("inf")))]
    points = curves(write_steps(tmp_path / "steps.parquet", rows), started=0)
    assert [(point.step, point.value) for point in points if point.name == "curve/train_loss"] == [(0, 2.0)]


def test_steps_that_are_missing_damaged_or_all_warm_up_give_no_curve(tmp_path: Path) -> None:
    assert curves(tmp_path / "absent.parquet", started=0) == ()
    damaged = write_steps(tmp_path / "damaged.parquet", [(0, 0, "window", 1.0, 4, 3.0)])
    damaged.write_bytes(odd_integers(damaged.read_bytes()))
    assert curves(damaged, started=0) == ()
    assert curves(write_steps(tmp_path / "steps.parquet", [(0, 0, "warmup", 1.0, 1, None)]), started=0) == ()


def test_samples_become_mlflows_own_system_metrics_with_their_times(tmp_path: Path) -> None:
    table = {
        "seconds": [-0.25, 0.0, 0.25],
        "unix_seconds": [1000.0, 1000.25, 1000.5],
        "phase": ["warmup", "window", "window"],
        "host_cpu_cores": [None, 1.0, 3.0],
        "host_memory_bytes": [2e9, 2e9, 3e9],
        "gpu1_utilisation": [0.5, 1.0, None],
        "rank0_rss_bytes": [1e8, 1e8, 1e8],
    }
    parquet.write_table(pa.table(table), tmp_path / "series.parquet")
    points = system_metrics(tmp_path / "series.parquet", 4)
    by_name = {name: [point for point in points if point.name == name] for name in {point.name for point in points}}
    cpu = by_name["system/cpu_utilization_percentage"]
    assert [(point.value, point.step, point.timestamp) for point in cpu] == [(25.0, 1, 1000250), (75.0, 2, 1000500)]
    assert [point.value for point in by_name["system/gpu_1_utilization_percentage"]] == [50.0, 100.0]
    assert [point.value for point in by_name["system/system_memory_usage_megabytes"]] == [2000.0, 2000.0, 3000.0]
    assert len(by_name["system/rank0_rss_bytes"]) == 3
    merged = system_metrics(tmp_path / "series.parquet", None, max_points=2)
    assert [point.value for point in merged if point.name == "system/host_memory_bytes"] == []
    assert [point.value for point in merged if point.name == "system/system_memory_usage_megabytes"] == [2000.0, 3000.0]
    assert system_metrics(tmp_path / "missing.parquet", 4) == ()


def test_what_was_learned_is_logged_over_samples_with_the_time_of_training_if_it_is_known() -> None:
    learning = LearningCurve((LearningPoint(32, 2.0, 1.5),), (LearningPoint(64, 0.9),))
    assert learning_curves(learning, started=1000, ended=9000) == (
        MetricPoint("learning/train_loss", 2.0, 32, 2500),
        MetricPoint("learning/quality", 0.9, 64, 9000),
    )
    assert learning_curves(None, 0, 0) == ()
