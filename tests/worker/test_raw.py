"""`self.log` in the raw loop gives the same quality as in Lightning's."""

from __future__ import annotations

import pytest
import torch
from one_rank import BOTH_LOOPS, MEASURE

from accelsweep.errors import Unsupported
from accelsweep.worker.loops.raw import RawLog

ROWS = """
import lightning.pytorch as pl, torch
from torch.utils.data import DataLoader, TensorDataset
class Rows(pl.LightningDataModule):
    def __init__(self, batch_size):
        super().__init__()
        self.batch_size = batch_size
    def train_dataloader(self):
        return DataLoader(TensorDataset(torch.ones(80, 1)), self.batch_size)
    def val_dataloader(self):
        return DataLoader(TensorDataset(torch.arange(4002.0)), self.batch_size)
class Logging(pl.LightningModule):
    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(1))
    def training_step(self, batch, batch_idx):
        return self.weight.sum()
    def validation_step(self, batch, batch_idx):
        self.log("val_row", batch[0].mean())
        self.log("val_half", torch.ones((), dtype=torch.bfloat16))
"""


@BOTH_LOOPS
def test_a_short_last_validation_batch_counts_by_its_samples(run, tmp_path, loop):
    """500 batches of 8 rows and one of 2, and so many numbers of 16 bits that their sum would stand still at 2048."""
    (tmp_path / "rows_to_log.py").write_text(ROWS)
    result = run(
        loop=loop,
        model={"_target_": "rows_to_log.Logging"},
        data={"_target_": "rows_to_log.Rows"},
        measure={**MEASURE, "quality_samples": 16, "quality_metric": "val_row"},
    )
    assert (result.outcome, result.reason) == ("measured", None)
    assert result.metrics["quality"].value == pytest.approx(2000.5, rel=1e-6)
    assert result.metrics["logged.val_half"].value == 1.0


class Listening:
    """Has only what RawLog replaces."""


@pytest.fixture
def log():
    found = RawLog(torch.device("cpu"))
    found.attach(Listening)
    found.begin(validating=True)
    return found


def test_a_stated_batch_size_has_precedence(log):
    for value, stated in ((1.0, 1), (2.0, 3)):
        log.batch = torch.ones(8)
        Listening.log("stated", torch.tensor(value), batch_size=stated)
        Listening.log("seen", torch.tensor(value))
    assert log.means(across_ranks=False) == {"stated": 1.75, "seen": 1.5}


def test_a_value_that_changes_later_is_logged_as_it_was(log):
    weight = torch.ones(())
    log.begin(validating=False)
    Listening.log("weight", weight)
    weight += 1
    assert log.means(across_ranks=False) == {"weight": 1.0}


@pytest.mark.parametrize("reduce_fx", ["max", torch.min, sum])
def test_another_reduction_than_the_mean_is_refused_where_there_is_something_to_reduce(log, reduce_fx):
    with pytest.raises(Unsupported, match=r"averages logged values, but 'norm' has reduce_fx=(max|min|sum)"):
        Listening.log("norm", 1.0, reduce_fx=reduce_fx)
    log.begin(validating=False)
    Listening.log("norm", 1.0, reduce_fx=reduce_fx)
    assert log.means(across_ranks=False) == {"norm": 1.0}
