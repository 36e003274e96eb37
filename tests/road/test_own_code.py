"""The user's own classes on the command line, from the working directory to the report."""

import pytest
from home import Home

pytestmark = pytest.mark.real

MINE = """
import lightning.pytorch as pl
import torch
from torch.utils.data import DataLoader, TensorDataset

class Module(pl.LightningModule):
    def __init__(self, width):
        super().__init__()
        self.network = torch.nn.Sequential(torch.nn.Linear(3, width), torch.nn.Linear(width, 2))

    def training_step(self, batch, batch_idx):
        return torch.nn.functional.cross_entropy(self.network(batch[0]), batch[1])

class Data(pl.LightningDataModule):
    def __init__(self, batch_size):
        super().__init__()
        self.batch_size = batch_size

    def train_dataloader(self):
        rows = TensorDataset(torch.randn(400, 3), torch.randint(2, (400,)))
        return DataLoader(rows, batch_size=self.batch_size, shuffle=True, drop_last=True)

class Rows(TensorDataset):
    def __init__(self, rows):
        super().__init__(torch.randn(rows, 3), torch.randint(2, (rows,)))
"""


def test_modules_and_data_of_ones_own_run_by_their_names_alone(home: Home):
    home.module("mine", MINE)
    own = ["model._target_=mine.Module", "model.width=2,4", "data._target_=mine.Data"]
    done = home.accelsweep("run", "experiment=tiny", "repeats=1", "optimizer=adamw", *own, "--name", "own")
    assert done.returncode == 0, done.stdout
    assert "applies only if mine.Module leaves configure_optimizers to accelsweep" in done.stdout
    assert "batch 32 | model.width=4" in done.stdout
    assert len(home.records("own")) == 4


def test_a_plain_network_is_answered_with_the_command_that_then_runs(home: Home):
    home.module("mine", MINE)
    rows = ["data=dataset", "data.train._target_=mine.Rows", "data.train.rows=400"]
    plain = ["model._target_=torch.nn.Linear", "model.in_features=3", "model.out_features=2"]
    done = home.accelsweep("run", "experiment=tiny", "batch_size=16", "repeats=1", *plain, *rows, "--name", "plain")
    assert done.returncode == 1
    told = home.accelsweep("runs", "plain").stdout
    command = "model=supervised model.network._target_=torch.nn.Linear model.network.in_features=3"
    assert command in " ".join(told.split())
    networks = ["model.network.in_features=3", "model.network.out_features=2"]
    answer = ["model=supervised", "model.network._target_=torch.nn.Linear", *networks]
    loss = "model.loss._target_=torch.nn.CrossEntropyLoss"
    done = home.accelsweep(
        "run", "experiment=tiny", "batch_size=16", "repeats=1", *answer, loss, *rows, "--name", "net"
    )
    assert done.returncode == 0, done.stdout
