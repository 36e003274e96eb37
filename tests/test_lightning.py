"""The callback for Lightning's Trainer: what it says of a training, and where the ratio goes."""

from __future__ import annotations

import shutil
import time

import lightning.pytorch as pl
import pytest
import torch
from example_sweep import build_example_sweep
from lightning.pytorch.loggers import MLFlowLogger
from torch.utils.data import DataLoader, TensorDataset

from accelsweep import reporting
from accelsweep.errors import InputError
from accelsweep.features.watch.live_rate import METRIC
from accelsweep.lightning import Watch

pytestmark = pytest.mark.heavy


class Module(pl.LightningModule):
    """A layer that is trained; `fails_at` is the batch at which it fails, and each step takes `seconds` at least."""

    def __init__(self, fails_at=None, seconds=0.0):
        super().__init__()
        self.layer, self._fails_at, self._seconds = torch.nn.Linear(4, 2), fails_at, seconds

    def training_step(self, batch, number):
        time.sleep(self._seconds)
        if number == self._fails_at:
            raise RuntimeError("the disk is full")
        return self.layer(batch[0]).sum()

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), 0.1)

    def train_dataloader(self):
        return DataLoader(TensorDataset(torch.zeros(32 * 60, 4)), 32)


@pytest.fixture
def trainer(tmp_path, monkeypatch):
    """Return a function that makes a Trainer with the callback."""
    monkeypatch.chdir(tmp_path)
    build_example_sweep(tmp_path)

    def make(logger=False, **options):
        quiet = {"enable_progress_bar": False, "enable_checkpointing": False, "enable_model_summary": False}
        callback = Watch("sweeps/example", **options)
        return pl.Trainer(accelerator="cpu", max_epochs=2, logger=logger, callbacks=[callback], **quiet)

    return make


def test_a_training_is_compared_and_the_ratio_logged(trainer, tmp_path, capsys, monkeypatch, empty_database):
    shutil.copy(empty_database, tmp_path)
    uri = f"sqlite:///{tmp_path}/mlflow.db"
    monkeypatch.setenv("MLFLOW_TRACKING_URI", uri)  # the logger sets it too
    logger = MLFlowLogger(tracking_uri=uri)
    trainer(logger, every_minutes=0.05).fit(Module(seconds=0.04))  # longer than that, also on a fast machine
    said = [line for line in capsys.readouterr().err.splitlines() if line.startswith("accelsweep: ")]
    assert "% of what was measured on example-host on 2026-01-05" in said[0]
    assert said[0].count("batch 32, 32-bit, 1 device") == 1
    assert said[-1].startswith("accelsweep: the whole training: ")
    assert logger.experiment.get_metric_history(logger.run_id, METRIC)


def test_a_training_that_fails_is_compared_until_then(trainer, capsys):
    with pytest.raises(RuntimeError, match="the disk is full"):
        trainer().fit(Module(fails_at=50))
    assert "accelsweep: the whole training: " in capsys.readouterr().err


def test_a_setting_can_be_named(trainer, capsys):
    trainer(setting="batch_size=128 devices=1 precision=32-true", every_minutes=0.05).fit(Module())
    assert "batch 128, 32-bit, 1 device" in capsys.readouterr().err


def test_in_a_run_of_a_sweep_nothing_is_read_or_compared(monkeypatch):
    monkeypatch.setattr(reporting, "is_measured", True)
    watch = Watch("sweeps/that-is-being-measured")
    watch.on_train_start(None, None)
    watch.on_train_end(None, None)


def test_the_other_package_of_lightning_has_a_callback_of_its_own(trainer, capsys):
    import pytorch_lightning

    from accelsweep import pytorch_lightning as ours

    class Other(pytorch_lightning.LightningModule):
        training_step, configure_optimizers = Module.training_step, Module.configure_optimizers
        train_dataloader = Module.train_dataloader

        def __init__(self):
            super().__init__()
            self.layer, self._fails_at, self._seconds = torch.nn.Linear(4, 2), None, 0.0

    quiet = {"enable_progress_bar": False, "enable_checkpointing": False, "enable_model_summary": False}
    watch = ours.Watch("example")
    pytorch_lightning.Trainer(accelerator="cpu", max_epochs=2, logger=False, callbacks=[watch], **quiet).fit(Other())
    assert "accelsweep: the whole training: " in capsys.readouterr().err


def test_an_unknown_sweep_is_refused_at_once(trainer):
    with pytest.raises(InputError, match="no sweep 'other'"):
        Watch("sweeps/other")
