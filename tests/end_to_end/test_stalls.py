"""All processes of a run are stopped in the middle of its window, as `scontrol suspend` or a laptop's lid would."""

from __future__ import annotations

import os
import signal
import time

import mlflow
import pytest
from polling import until

from accelsweep.records.layout import SweepFolder
from accelsweep.records.run_record import Record

pytestmark = pytest.mark.real

STOPPED_SECONDS = 2.5

HALTS = """
import os, time
from pathlib import Path
import lightning.pytorch as pl, torch

class Halts(pl.LightningModule):
    '''Steps of 10 ms; the first run says where it is in the middle of its window.'''
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(1, 1)
        self.steps = 0

    def training_step(self, batch, number):
        self.steps += 1
        if self.steps == 60 and not Path("ranks.txt").exists():
            Path("rank.part").write_text(str(os.getpid()))
            Path("rank.part").rename("ranks.txt")
        time.sleep(0.01)
        return self.layer(torch.ones(1, 1)).mean()
"""

EXPERIMENT = """\
# @package _global_
hydra:
  sweeper:
    params:
      batch_size: 16,32
accelerator: cpu
threads: 1
baseline: {batch_size: 16}
repeats: 1
model: {_target_: halts.Halts}
measure:
  warmup_steps: 10
  min_steps: 100
  max_steps: 150
  min_seconds: 1.5
  probe_steps: null
  quality_samples: null
"""


def test_a_run_whose_processes_were_stopped_is_disturbed_and_has_the_rate_without_beside_its_own(home):
    home.module("halts", HALTS)
    home.experiment("halts", EXPERIMENT)
    process = home.start("run", "experiment=halts")
    marker = home.path / "ranks.txt"
    until(lambda: process.poll() is not None or marker.exists())
    assert marker.exists(), process.communicate()[0]
    everybody = {int(marker.read_text()), process.pid, *home.processes("cli", "snakemake", "executor", "publisher")}
    for number in (signal.SIGSTOP, signal.SIGCONT):
        for one in everybody:
            os.kill(one, number)
        if number is signal.SIGSTOP:
            time.sleep(STOPPED_SECONDS)
    output, _ = process.communicate()
    assert process.returncode == 0, output

    folder = SweepFolder(home.path, "halts")
    records = [Record.read(path) for path in folder.root.glob("runs/*/record.json")]
    stopped = max(records, key=lambda record: record.metrics["stall_seconds"].value)
    (other,) = (record for record in records if record is not stopped)
    value = {name: metric.value for name, metric in stopped.metrics.items()}
    assert value["stall_seconds"] == pytest.approx(STOPPED_SECONDS, rel=0.2)
    rate, without = value["samples_per_second"], value["samples_per_second_without_stalls"]
    lost = value["stall_seconds"] / value["window_seconds"]
    assert without * (1 - lost) == pytest.approx(rate)
    assert lost > 0.4
    assert other.metrics["samples_per_second_without_stalls"].value is None
    (doubt,) = (doubt for doubt in stopped.doubts if doubt.code == "processes_stopped")
    assert doubt.disturbing
    assert f"({lost:.0%} of the window)" in doubt.message

    told = f"without that the rate is {without:,.0f} samples/s"
    assert told in doubt.message
    assert "without its stall)" in output
    assert told in output
    assert told in (folder.report / "report.md").read_text()
    assert told in (folder.report / "index.html").read_text()
    assert "processes_stopped" in home.accelsweep("runs", "halts").stdout
    assert "disturbed" in home.accelsweep("retry", "halts", "--outcome", "disturbed").stdout
    client = mlflow.MlflowClient(f"sqlite:///{home.path}/mlflow.db")
    ids = [one.experiment_id for one in client.search_experiments()]
    (run,) = client.search_runs(ids, f"tags.run = '{stopped.run}'")
    assert run.data.metrics["samples_per_second_without_stalls"] == pytest.approx(without)
    assert "processes_stopped" in run.data.tags["doubts"]
    assert told in run.data.tags["mlflow.note.content"]
