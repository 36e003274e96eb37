"""The model that traces its own steps writes the trace, and trains like the model it wraps."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch


def test_the_stretch_of_steps_is_traced_and_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.syspath_prepend(str(Path(__file__).resolve().parents[2] / "benchmarks" / "gpu" / "home"))
    from traced import FIRST, LAST, TracedMLP

    module = TracedMLP(trace=str(tmp_path / "trace.json"), width=8)
    batch = torch.rand(4, 1, 8, 8), torch.zeros(4, dtype=torch.long)
    for step in range(LAST):
        module.training_step(batch, step).backward()
    seen = json.loads((tmp_path / "trace.json").read_text("utf-8"))
    assert seen["steps"] == LAST - FIRST
    assert set(seen["waits"].values()) == {0}
