"""From config to objects: what is given, what has precedence, what is refused and how to mend it."""

from __future__ import annotations

import lightning.pytorch as pl
import pytest
import torch

from accelsweep.core.errors import InputError
from accelsweep.workloads.build import build_data, build_module

SGD = {"_target_": "torch.optim.SGD", "_partial_": True, "lr": 0.25}
HERE = "accelsweep_own_code"


@pytest.fixture(autouse=True)
def own_code(tmp_path, monkeypatch):
    """A user's module in the working directory."""
    (tmp_path / f"{HERE}.py").write_text(
        """
import lightning.pytorch as pl
import torch

class Bare(pl.LightningModule):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(2, 1)
        self.frozen = torch.nn.Parameter(torch.ones(1), requires_grad=False)

class Own(Bare):
    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), lr=0.5)

class Data(pl.LightningDataModule):
    def __init__(self, batch_size, seed=None):
        super().__init__()
        self.batch_size, self.seed = batch_size, seed

class Anything(pl.LightningDataModule):
    def __init__(self, **settings):
        super().__init__()
        self.settings = settings

class NoBatchSize(pl.LightningDataModule):
    def __init__(self, size=3):
        super().__init__()

class NoModule:
    pass

def no_data(batch_size):
    return [batch_size]
"""
    )
    monkeypatch.syspath_prepend(tmp_path)


def config(model="Bare", data="Data", **more):
    return {
        "model": {"_target_": f"{HERE}.{model}"},
        "data": {"_target_": f"{HERE}.{data}"},
        "optimizer": SGD,
        "batch_size": 16,
        **more,
    }


def test_the_configs_optimizer_serves_a_module_that_defines_none():
    optimizer = build_module(config("Bare")).configure_optimizers()
    assert isinstance(optimizer, torch.optim.SGD)
    assert optimizer.defaults["lr"] == 0.25
    assert all(parameter.requires_grad for parameter in optimizer.param_groups[0]["params"])


def test_a_modules_own_optimizer_has_precedence():
    assert isinstance(build_module(config("Own")).configure_optimizers(), torch.optim.Adam)


def test_a_module_without_any_optimizer_is_told_what_to_choose():
    with pytest.raises(InputError, match="optimizer=sgd"):
        build_module(config("Bare", optimizer=None))


def test_what_is_no_module_is_refused():
    with pytest.raises(InputError, match="not a LightningModule"):
        build_module(config("NoModule"))
    with pytest.raises(InputError, match="not a LightningDataModule"):
        build_data(config(data="no_data"), seed=1)


def test_data_gets_the_batch_size_and_the_seed_of_the_run():
    data = build_data(config(), seed=7)
    assert (data.batch_size, data.seed) == (16, 7)


def test_a_seed_that_the_config_fixes_stays():
    fixed = config()
    fixed["data"]["seed"] = 3
    assert build_data(fixed, seed=7).seed == 3


def test_data_that_takes_anything_gets_the_batch_size_only():
    assert build_data(config(data="Anything"), seed=7).settings == {"batch_size": 16}


def test_data_without_a_batch_size_is_told_to_take_one():
    with pytest.raises(InputError, match="takes no argument batch_size: add one"):
        build_data(config(data="NoBatchSize"), seed=7)


def test_a_second_batch_size_in_the_data_config_is_refused():
    twice = config()
    twice["data"]["batch_size"] = 8
    with pytest.raises(InputError, match="remove it"):
        build_data(twice, seed=7)


def test_nothing_need_be_subclassed():
    assert type(build_data(config(), seed=1)).__mro__[1] is pl.LightningDataModule
