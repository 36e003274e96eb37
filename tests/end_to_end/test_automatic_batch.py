"""`batch_size=auto` from the command line: searched first, within a known limit of memory, then kept."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from accelsweep.records.plan import Manifest
from accelsweep.records.run_record import Record

HOLDS = """
import lightning.pytorch as pl, torch

class Holds(pl.LightningModule):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(1, 1)

    def training_step(self, batch, number):
        held = torch.ones(len(batch[0]), 2**18)  # a MiB a sample, until the step ends
        return self.layer(held[:, :1]).mean()
"""
LIMIT = ["+measure.rank_memory_bytes=300000000", "+measure.headroom=0.2", "+measure.batch_resolution=0.05"]
LINE = [
    *("model=own", "model._target_=holds.Holds", "data=digits", "optimizer=sgd", "accelerator=cpu", "devices=1,2"),
    *("batch_size=auto", "measure=brief", "measure.probe_steps=null", "measure.quality_samples=null", *LIMIT),
    *("repeats=1", "--name", "mine"),
]


def accelsweep(*arguments: str, home: Path) -> str:
    command = [sys.executable, "-m", "accelsweep", *arguments]
    done = subprocess.run(command, cwd=home, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.long  # a search on one rank and on two, each of some tries, and the sweep after them: a minute or two
@pytest.mark.real
def test_the_batch_is_that_of_the_arithmetic_and_a_resumed_sweep_keeps_it(tmp_path: Path) -> None:
    """240 MB hold 228 samples of a MiB and nothing else, on one rank and on two."""
    (tmp_path / "holds.py").write_text(HOLDS)
    accelsweep("run", *LINE, home=tmp_path)
    manifest = Manifest.read(tmp_path / "sweeps/mine/manifest.json")
    found = [setting.axes["batch_size"] for setting in manifest.settings]
    assert len(found) == 2
    assert all(180 < batch < 229 for batch in found)
    records = [Record.read(path) for path in (tmp_path / "sweeps/mine/runs").glob("*/record.json")]
    assert {record.effective.batch_size for record in records if record.effective is not None} == set(found)
    assert (tmp_path / "reports/mine-largest-batch/index.html").is_file()
    said = accelsweep("run", *LINE, "--add-repeats", "1", home=tmp_path)
    assert "searching first" not in said
    assert [
        setting.axes["batch_size"] for setting in Manifest.read(tmp_path / "sweeps/mine/manifest.json").settings
    ] == found
