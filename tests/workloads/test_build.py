"""From config to objects: what is given, what has precedence, what is refused and how to mend it."""

from __future__ import annotations

import lightning.pytorch as pl
import pytest
import torch
from hydra.errors import HydraException
from hydra.utils import instantiate
from omegaconf import OmegaConf
from tiny_sweep import config_with

from accelsweep.errors import InputError, Unsupported
from accelsweep.workloads.instantiate import build_data, build_module, prepare_data, with_convert_modes

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

class Configured(Bare):
    def __init__(self, cfg=None, inner=None, sizes=()):
        super().__init__()
        self.cfg, self.inner, self.sizes = cfg, inner, sizes

class ConfiguredNet(torch.nn.Linear):
    def __init__(self, cfg):
        super().__init__(cfg.width, cfg["width"])

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

class Attribute(pl.LightningDataModule):
    def __init__(self):
        super().__init__()
        self.batch_size = 1

class Hyperparameter(pl.LightningDataModule):
    def __init__(self, settings=None):
        super().__init__()
        self.save_hyperparameters({"batch_size": 1})

class OnDevice(pl.LightningDataModule):
    def __init__(self, batch_size, device):
        super().__init__()
        self.device = device

class Sized(Bare):
    def __init__(self, width):
        super().__init__()
        self.width = width

class SizedByName(Bare):
    def __init__(self, *, width):
        super().__init__()

class WithData(Bare):
    prepared = 0
    def __init__(self, batch_size=1):
        super().__init__()
        self.batch_size = batch_size
    def prepare_data(self):
        type(self).prepared += 1
    def train_dataloader(self):
        return [self.batch_size]

class Net(torch.nn.Module):
    def __init__(self, width=1):
        super().__init__()

class Rows(torch.utils.data.Dataset):
    def __len__(self):
        return 3

class NoModule:
    pass

def no_data(batch_size):
    return [batch_size]
"""
    )
    monkeypatch.syspath_prepend(tmp_path)


def config(model="Bare", data="Data", *, of_model=(), of_data=(), **more):
    """Return the config of these classes; `of_model` and `of_data` are further keys of both, which go before."""
    nodes = {
        "model": {"_target_": f"{HERE}.{model}", **dict(of_model)},
        "data": {"_target_": f"{HERE}.{data}", **dict(of_data)},
    }
    return config_with(**{**nodes, "optimizer": SGD, "batch_size": 16, **more})


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


def test_an_optimizer_that_the_sweep_varies_but_the_module_ignores_is_no_cell():
    with pytest.raises(Unsupported, match="Own defines configure_optimizers, so every value would measure the same"):
        build_module(config("Own"), axes=["batch_size", "optimizer.lr"])
    build_module(config("Bare"), axes=["optimizer"])
    build_module(config("Own"), axes=["batch_size", "model.optimizer"])


def test_what_is_no_module_is_refused():
    with pytest.raises(InputError, match="not a LightningModule"):
        build_module(config("NoModule"))
    with pytest.raises(InputError, match="not a LightningDataModule"):
        build_data(config(data="no_data"), seed=1)


def test_a_plain_network_is_told_the_command_that_trains_it():
    given = config("Net", of_model={"width": 3})
    command = f"model=supervised model.network._target_={HERE}.Net model.network.width=3 model.loss._target_=torch.nn."
    with pytest.raises(InputError, match=r"plain torch\.nn\.Module") as caught:
        build_module(given)
    assert command in str(caught.value)


def test_a_data_set_is_told_the_command_that_trains_on_it():
    with pytest.raises(InputError, match=rf"data=dataset data.train._target_={HERE}.Rows"):
        build_data(config(data="Rows"), seed=1)


def test_a_module_of_the_other_lightning_package_is_told_what_to_import():
    other = {"_target_": "pytorch_lightning.demos.boring_classes.BoringModel"}
    with pytest.raises(InputError, match=r"write `import lightning.pytorch as pl`"):
        build_module(config(of_model=other))


def test_an_argument_that_the_class_does_not_take_is_named_with_the_nearest_one():
    slip = config("Sized", of_model={"widht": 3})
    with pytest.raises(InputError, match=r"model.widht: .*Sized has no such argument \(did you mean 'width'\?\)"):
        build_module(slip)


def test_an_argument_that_the_class_needs_is_asked_for():
    for name in ("Sized", "SizedByName"):
        with pytest.raises(InputError, match=rf"{name} needs width: give it, \+model.width=VALUE"):
            build_module(config(name))


@pytest.mark.parametrize("convert", [None, "none", "partial", "object", "all"])
def test_a_mapping_and_a_list_reach_a_class_of_the_users_as_hydra_gives_them(convert):
    inner = {"_target_": f"{HERE}.Configured", "cfg": {"width": 2}, "sizes": [1, 2]}
    given = {"cfg": {"width": 8, "deep": [{"a": 1}]}, "sizes": [3, 4], "inner": inner}
    if convert is not None:
        given["_convert_"] = convert
    ours = build_module(config("Configured", of_model=given))
    theirs = instantiate(OmegaConf.create({"_target_": f"{HERE}.Configured", **given}))
    for name in ("cfg", "sizes"):
        assert type(getattr(ours, name)) is type(getattr(theirs, name))
        assert type(getattr(ours.inner, name)) is type(getattr(theirs.inner, name))
    if convert in (None, "none"):
        assert (ours.cfg.width, ours.cfg.deep[0].a, ours.inner.cfg.width) == (8, 1, 2)


def test_a_network_of_the_users_within_a_class_of_ours_gets_its_config_as_hydra_gives_it():
    net = {"_target_": f"{HERE}.ConfiguredNet", "cfg": {"width": 3}}
    own = {"_target_": "accelsweep.workloads.lightning_modules.Supervised", "network": net, "inputs": ["x"]}
    module = build_module(config_with(model=own, optimizer=SGD))
    assert module.network.in_features == 3
    with pytest.raises(HydraException, match="has no attribute 'width'"):
        build_module(config_with(model={**own, "network": {**net, "_convert_": "all"}}, optimizer=SGD))


def test_a_callback_of_the_users_gets_its_config_as_hydra_gives_it():
    trainer = {"strategy": "auto", "callbacks": [{"_target_": f"{HERE}.Configured", "cfg": {"width": 3}}]}
    found = instantiate(with_convert_modes(trainer))
    assert (type(found), found["callbacks"][0].cfg.width) == (dict, 3)


def test_what_is_not_to_be_built_is_handed_over_as_it_was_written():
    given = {"_recursive_": False, "inner": {"_target_": "torch.optim.Adam", "lr": 1}}
    assert build_module(config("Configured", of_model=given)).inner == {"_target_": "torch.optim.Adam", "lr": 1}


def test_an_optimizer_within_a_module_is_told_to_be_partial():
    given = {"inner": {"_target_": "torch.optim.Adam", "lr": 1}}
    with pytest.raises(
        InputError, match=r"model.inner: torch.optim.Adam needs params: .* add model.inner._partial_=true"
    ):
        build_module(config("Configured", of_model=given))
    partial = {"inner": {**given["inner"], "_partial_": True}}
    assert build_module(config("Configured", of_model=partial)).inner([torch.nn.Parameter()]).defaults["lr"] == 1


def test_data_gets_the_batch_size_and_the_seed_of_the_run():
    data = build_data(config(), seed=7)
    assert (data.batch_size, data.seed) == (16, 7)


def test_a_seed_that_the_config_fixes_stays():
    assert build_data(config(of_data={"seed": 3}), seed=7).seed == 3


def test_data_that_takes_anything_gets_the_batch_size_only():
    assert build_data(config(data="Anything"), seed=7).settings == {"batch_size": 16}


@pytest.mark.parametrize("name", ["Attribute", "Hyperparameter"])
def test_data_without_such_an_argument_has_its_batch_size_set_as_lightning_does_it(name):
    data = build_data(config(data=name), seed=7)
    assert (data.batch_size if name == "Attribute" else data.hparams.batch_size) == 16


def test_data_that_knows_no_batch_size_is_built_and_left_to_the_check_of_its_first_batch():
    assert not hasattr(build_data(config(data="NoBatchSize"), seed=7), "batch_size")


def test_only_data_that_names_a_device_is_given_it():
    assert build_data(config(data="OnDevice"), seed=7, device=torch.device("cpu")).device == torch.device("cpu")
    assert build_data(config(data="Data"), seed=7, device=torch.device("cpu")).seed == 7


def test_the_batch_size_goes_to_a_module_that_brings_its_own_data():
    given = config("WithData", of_data={"_target_": "accelsweep.workloads.data_module.ModuleData"})
    data, module = build_data(given, seed=1), build_module(given)
    data.serve(module)
    assert list(data.train_dataloader()) == [16]
    assert list(data.val_dataloader()) == []
    data.serve(build_module(config("Bare")))
    with pytest.raises(InputError, match="Bare defines no train_dataloader"):
        data.train_dataloader()


def test_data_is_prepared_once_and_so_is_the_modules_own():
    given = config("WithData", seed=1)
    prepare_data(given)
    assert type(build_module(given)).prepared == 1


def test_data_that_needs_a_device_is_prepared_on_the_cpu():
    prepare_data(config("Bare", data="OnDevice", seed=1))


def test_a_second_batch_size_in_the_data_config_is_refused():
    twice = config(of_data={"batch_size": 8})
    with pytest.raises(InputError, match="remove it"):
        build_data(twice, seed=7)


def test_nothing_need_be_subclassed():
    assert type(build_data(config(), seed=1)).__mro__[1] is pl.LightningDataModule
