"""The real thing: torch and Lightning through the supervisor's own command, forked and spawned."""

from __future__ import annotations

from pathlib import Path

import pyarrow.parquet
import pytest
from patience import PATIENCE_SECONDS
from tiny_sweep import measure_sweep, plan_sweep

from accelsweep.core.outcome import Outcome

pytestmark = pytest.mark.real


def test_forked_and_spawned_runs_on_one_and_two_ranks_are_measured_alike(tmp_path: Path) -> None:
    cells = [
        {"launcher": "fork", "devices": 1, "loop": "lightning"},
        {"launcher": "fork", "devices": 2, "loop": "lightning"},
        {"launcher": "fork", "devices": 1, "loop": "lightning", "env": {"TOKENIZERS_PARALLELISM": "false"}},
        {"launcher": "spawn", "devices": 2, "loop": "lightning"},
    ]
    folder, block = plan_sweep(tmp_path / "home", cells)
    records, said = measure_sweep(folder, block, within_seconds=PATIENCE_SECONDS, fresh=True)
    assert "not safe" not in said
    for record, cell in zip(records, cells, strict=True):
        assert (record.outcome, record.reason) == (Outcome.measured, None)
        assert record.effective is not None
        launcher = "spawn" if "env" in cell else cell["launcher"]  # variables must be set before libraries load
        assert (record.effective.launcher, record.effective.world_size) == (launcher, cell["devices"])
        steps = pyarrow.parquet.read_table(folder.steps(record.run)).to_pydict()
        assert set(steps["rank"]) == set(range(int(str(cell["devices"]))))
    forked, spawned = records[0].effective, records[2].effective
    assert forked is not None
    assert spawned is not None
    ignored = {"launcher", "window_steps"}  # how many steps fit into the window is the machine's affair
    assert forked.model_dump(exclude=ignored) == spawned.model_dump(exclude=ignored)
    losses = [record.metrics["final_train_loss"].value for record in records]
    assert all(loss is not None for loss in losses)
