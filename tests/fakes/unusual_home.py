"""One sweep of a user's own modules with many unusual settings: one for each end-to-end test that would need a sweep.

Every setting is a file of the user's group `case`. The command quotes what a shell would run, and its addresses hold
passwords.
"""

from __future__ import annotations

from home import Home
from shared_fork_server import CANARY

from accelsweep.records.layout import SweepFolder
from accelsweep.records.plan import Manifest
from accelsweep.records.run_record import Record

PASSWORD = "hunter2b6c4"
TOKEN = "tok9e1d77"
HOSTILE = "a b'c\";$(touch pwned)`touch pwned`\n../ü{x}"
WARMUP_STEPS = 3

MINE = """\
import contextlib
import sqlite3
import time

import lightning.pytorch as pl
import mlflow
import torch
from torch.utils.data import DataLoader, TensorDataset


class Module(pl.LightningModule):
    def __init__(self, width, mirror):
        super().__init__()
        self.network = torch.nn.Sequential(torch.nn.Linear(3, width), torch.nn.Linear(width, 2))

    def training_step(self, batch, batch_idx):
        return torch.nn.functional.cross_entropy(self.network(batch[0]), batch[1])


class Broken(Module):
    def training_step(self, batch, batch_index):
        raise RuntimeError("the user's own mistake")


class Talkative(Module):
    def training_step(self, batch, batch_index):
        self.logger.experiment.add_scalar("never", 1.0)
        self.logger.log_metrics({"never": 1.0})
        self.log("train/steps seen", float(batch_index), prog_bar=True)
        self.log_dict({"constant": 2.5, "broken": float("nan")})
        if batch_index == 0:
            mlflow.log_metric("mine", 7.0)
        return super().training_step(batch, batch_index)


def published(steps):
    of_this_run = "SELECT run_uuid FROM params WHERE key = 'case' AND value = 'lasting'"
    points = f"SELECT count(*) FROM metrics WHERE key = 'steps_done' AND value = ? AND run_uuid IN ({of_this_run})"
    with contextlib.closing(sqlite3.connect("mlflow.db")) as store:
        return store.execute(points, (steps,)).fetchone()[0]


class Lasting(Module):
    deadline = time.monotonic() + 120

    def training_step(self, batch, batch_index):
        if batch_index in (3, 7):  # on a busy machine the publisher takes its time
            while not published(batch_index) and time.monotonic() < self.deadline:
                time.sleep(0.1)
        return super().training_step(batch, batch_index)


class Data(pl.LightningDataModule):
    def __init__(self, batch_size):
        super().__init__()
        self.batch_size = batch_size

    def train_dataloader(self):
        rows = TensorDataset(torch.randn(1600, 3), torch.randint(2, (1600,)))
        return DataLoader(rows, batch_size=self.batch_size, shuffle=True, drop_last=True)
"""

LEAKY = f"""\
from mine import Module


class Leaky(Module):
    def training_step(self, batch, batch_index):
        print("connecting to postgresql://me:{PASSWORD}@db/labels", flush=True)
        raise RuntimeError("no answer from https://host/data?token={TOKEN}&x=1 and s3://me:{PASSWORD}@bucket")
"""

CASES = {
    "well": "seed: 1",
    "broken": "model: {_target_: mine.Broken}",
    "leaky": "model: {_target_: leaky.Leaky}",
    "talkative": "model: {_target_: mine.Talkative}",
    "talkative_raw": "model: {_target_: mine.Talkative}\nloop: raw",
    "lasting": "model: {_target_: mine.Lasting}",
}
"""The settings of each setting on top of the experiment; `lasting` lasts long enough to be followed."""

EXPERIMENT = f"""\
# @package _global_
defaults:
  - /case: null
  - override /model: mine
  - override /data: mine
hydra: {{sweeper: {{params: {{case: "{",".join(CASES)}"}}}}}}
accelerator: cpu
threads: 1
batch_size: 16
baseline: {{case: well}}
repeats: 1
limits: {{retries: 0}}
measure: {{warmup_steps: {WARMUP_STEPS}, min_steps: 10, max_steps: 40, min_seconds: 0.05, quality_samples: null}}
"""


def measure_unusual_settings(home: Home) -> None:
    """Fill the home, run the one command in it, and keep its ending beside it."""
    home.experiment("unusual", EXPERIMENT)
    home.module("mine", MINE)
    home.module("leaky", LEAKY)
    groups = {f"case/{name}": f"# @package _global_\n{text}" for name, text in CASES.items()}
    groups |= {
        "model/mine": "{_target_: mine.Module, width: 4, mirror: '${mirror}'}",
        "data/mine": "_target_: mine.Data",
    }
    for name, text in groups.items():
        file = home.path / "conf" / f"{name}.yaml"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(f"{text}\n")
    home.environment["MLFLOW_TRACKING_TOKEN"] = CANARY
    home.keep(home.accelsweep("run", "experiment=unusual", "optimizer=adamw", *_values()))


def _values() -> tuple[str, ...]:
    """Return overrides whose values nobody may run or show; the second mirror is for the case `well` alone."""
    one, two = (f"s3://me:{PASSWORD}@{name}" for name in ("one", "two"))
    others = ",".join(name for name in CASES if name != "well")
    quoted = HOSTILE.replace("\\", "\\\\").replace('"', '\\"')
    return (
        f'+remark="{quoted}"',
        f'+note="https://me:{PASSWORD}@host/data?token={TOKEN}"',
        f"+mirror={one},{two}",
        f"exclude=[{{when:{{mirror:'{two}',case:[{others}]}},because:one_is_enough}}]",
    )


def records_by_case(home: Home) -> dict[str, Record]:
    """Return the record of each case, with the first mirror."""
    folder = SweepFolder(home.path, "unusual")
    records = [Record.read(folder.record(run)) for run in Manifest.read(folder.manifest).wanted_runs()]
    return {record.axes["case"]: record for record in records if not record.axes["mirror"].endswith("two")}
