"""Shared types are declared once: what a worker writes is what the executor validates and a document holds."""

from __future__ import annotations

import json
from dataclasses import asdict, replace
from pathlib import Path

import numpy as np
import pytest
from tiny_sweep import config_with

from accelsweep.errors import DamagedFile
from accelsweep.metrics import Metric
from accelsweep.records.run_files import read_rank_result
from accelsweep.results import Doubt, Outcome, RankResult
from accelsweep.run_config import Run, SettingConfig
from accelsweep.worker.run_spec import RunSpec

RESULT = RankResult(
    rank=0,
    outcome=Outcome.measured,
    reason=None,
    error_kind="none",
    metrics={"window_steps": Metric(value=20, unit="steps"), "energy_joules": Metric(None, "J", reason="no counter")},
    environment={"before": {"cores_usable": 2, "devices": []}},
    doubts=(Doubt("short_window", "it was short", "raise measure.min_seconds"),),
)


def test_a_result_is_read_as_it_was_written(tmp_path: Path) -> None:
    RESULT.write(tmp_path / "rank-0.json")
    assert read_rank_result(tmp_path / "rank-0.json") == RESULT


def test_numbers_of_numpy_are_written_as_numbers(tmp_path: Path) -> None:
    replace(RESULT, metrics={"x": Metric(np.float32(0.5), "1")}).write(tmp_path / "rank-0.json")
    assert read_rank_result(tmp_path / "rank-0.json").metrics["x"].value == 0.5


@pytest.mark.parametrize(
    "change",
    [
        {"outcome": "finished"},
        {"metrics": {"x": {"value": None, "unit": "1"}}},
        {"metrics": {"x": {"value": "fast", "unit": "1"}}},
        {"later": 1},
    ],
    ids=["no outcome", "neither value nor reason", "no number", "a field of a later version"],
)
def test_the_executor_refuses_an_invalid_result(tmp_path: Path, change: dict[str, object]) -> None:
    path = tmp_path / "rank-0.json"
    path.write_text(json.dumps({**asdict(RESULT), **change}))
    with pytest.raises(DamagedFile, match="it is not a rank's result"):
        read_rank_result(path)


def test_a_truncated_result_is_damaged(tmp_path: Path) -> None:
    path = tmp_path / "rank-0.json"
    RESULT.write(path)
    path.write_bytes(path.read_bytes()[:-5])
    with pytest.raises(DamagedFile):
        read_rank_result(path)


def test_a_spec_is_read_as_it_was_written_with_a_typed_config(tmp_path: Path) -> None:
    config = config_with(env={"A": 3}, accelerator="cpu:xeon", mine={"a": [1, None]})
    spec = RunSpec(
        sweep="s", block="b", run=Run.of("c", 0, 1), planned_position=0, position=0, attempt=1, config=config,
        axes={"batch_size": 8},
        world_size=1, attempt_folder=str(tmp_path), host_memory=(4096, "control group"), device_models=("A100",),
    )  # fmt: skip
    spec.write()
    read = RunSpec.read(spec.file())
    assert (read, type(read.config)) == (spec, SettingConfig)
    assert (read.config.env, read.config.accelerator, read.config.device_model) == ({"A": "3"}, "cpu", "xeon")
    assert read.config.measure == config.measure
