"""From config to objects: which arguments are passed, what has precedence, what is refused and how to mend it."""

from __future__ import annotations

from inspect import Parameter
from typing import get_args

import pytest
import torch
import yaml
from hydra.utils import instantiate
from omegaconf import OmegaConf
from tiny_sweep import config_with

from accelsweep.errors import InputError, Unsupported
from accelsweep.installation import shipped_root
from accelsweep.run_config import Scaling
from accelsweep.workloads import targets
from accelsweep.workloads.datasets import RandomImages
from accelsweep.workloads.instantiate import (
    LR_FACTORS,
    build_data,
    build_module,
    configure_optimizer,
    prepare_data,
    scaled_learning_rate,
)
from accelsweep.workloads.targets import signature_parameters

SGD = {"_target_": "torch.optim.SGD", "_partial_": True, "lr": 0.25}
MODULE = "accelsweep_user_code"


@pytest.fixture(autouse=True)
def user_code(tmp_path, monkeypatch):
    """A user's module in the working directory."""
    (tmp_path / f"{MODULE}.py").write_text(
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


def config(model="Bare", data="Data", *, of_model=(), of_data=(), **keys):
    """Return the config of these classes; `of_model` and `of_data` have precedence over the `_target_` of each."""
    nodes = {
        "model": {"_target_": f"{MODULE}.{model}", **dict(of_model)},
        "data": {"_target_": f"{MODULE}.{data}", **dict(of_data)},
    }
    return config_with(**{**nodes, "optimizer": SGD, "batch_size": 16, **keys})


def test_a_module_without_an_optimizer_gets_the_configs():
    optimizer = build_module(config("Bare")).configure_optimizers()
    assert isinstance(optimizer, torch.optim.SGD)
    assert optimizer.defaults["lr"] == 0.25
    assert all(parameter.requires_grad for parameter in optimizer.param_groups[0]["params"])


def test_the_modules_optimizer_has_precedence():
    assert isinstance(build_module(config("Own")).configure_optimizers(), torch.optim.Adam)


def test_without_any_optimizer_the_error_says_what_to_choose():
    with pytest.raises(InputError, match="optimizer=sgd"):
        build_module(config("Bare", optimizer=None))


def test_an_optimizer_that_the_sweep_varies_but_the_module_ignores_is_unsupported():
    with pytest.raises(
        Unsupported, match="Own defines configure_optimizers, so every value would produce the same measurement"
    ):
        build_module(config("Own"), axes=["batch_size", "optimizer.lr"])
    build_module(config("Bare"), axes=["optimizer"])
    build_module(config("Own"), axes=["batch_size", "model.optimizer"])


def test_objects_of_other_types_are_refused():
    with pytest.raises(InputError, match="not a LightningModule"):
        build_module(config("NoModule"))
    with pytest.raises(InputError, match="not a LightningDataModule"):
        build_data(config(data="no_data"), seed=1)


def test_the_error_for_a_plain_network_is_the_command_that_trains_it():
    command = f"model=supervised model.network._target_={MODULE}.Net model.network.width=3 model.loss._target_=torch.nn"
    with pytest.raises(InputError, match=r"plain torch\.nn\.Module") as caught:
        build_module(config("Net", of_model={"width": 3}))
    assert command in str(caught.value)


def test_the_error_for_a_data_set_is_the_command_that_trains_on_it():
    with pytest.raises(InputError, match=rf"data=dataset data.train._target_={MODULE}.Rows"):
        build_data(config(data="Rows"), seed=1)


def test_the_error_for_a_module_of_pytorch_lightning_says_what_to_import():
    other = {"_target_": "pytorch_lightning.demos.boring_classes.BoringModel"}
    with pytest.raises(InputError, match=r"write `import lightning.pytorch as pl`"):
        build_module(config(of_model=other))


def test_an_unknown_argument_is_refused_with_the_nearest():
    with pytest.raises(InputError, match=r"model.widht: .*Sized has no such argument \(did you mean 'width'\?\)"):
        build_module(config("Sized", of_model={"widht": 3}))
    ours = {"_target_": "accelsweep.workloads.image_models.MLP", "chanels": 1}
    with pytest.raises(InputError, match=r"did you mean 'channels'"):
        build_module(config_with(model=ours))


@pytest.mark.parametrize("name", ["Sized", "SizedByName"])
def test_a_missing_argument_is_asked_for(name):
    with pytest.raises(InputError, match=rf"{name} requires width: set \+model.width=VALUE"):
        build_module(config(name))


def test_keys_of_an_unpacked_typed_dict_count_as_parameters():
    parameters = signature_parameters(RandomImages)
    assert {"image_size", "batch_size", "seed", "device", "placement"} <= set(parameters)
    assert Parameter.VAR_KEYWORD not in {parameter.kind for parameter in parameters.values()}


def test_other_keyword_arguments_stay_variadic():
    def anything(first, **others):
        return first, others

    def typed(**others: NotThere):  # noqa: F821  as under `if TYPE_CHECKING`
        return others

    for target in (anything, typed):
        assert signature_parameters(target)["others"].kind is Parameter.VAR_KEYWORD


@pytest.mark.parametrize("convert", [None, "none", "partial", "object", "all"])
def test_mappings_and_lists_reach_the_users_class_as_hydra_passes_them(convert):
    inner = {"_target_": f"{MODULE}.Configured", "cfg": {"width": 2}, "sizes": [1, 2]}
    node = {"cfg": {"width": 8, "deep": [{"a": 1}]}, "sizes": [3, 4], "inner": inner}
    if convert is not None:
        node["_convert_"] = convert
    ours = build_module(config("Configured", of_model=node))
    hydras = instantiate(OmegaConf.create({"_target_": f"{MODULE}.Configured", **node}))
    for name in ("cfg", "sizes"):
        assert type(getattr(ours, name)) is type(getattr(hydras, name))
        assert type(getattr(ours.inner, name)) is type(getattr(hydras.inner, name))
    if convert in (None, "none"):
        assert (ours.cfg.width, ours.cfg.deep[0].a, ours.inner.cfg.width) == (8, 1, 2)


def test_the_users_network_within_our_class_gets_its_config_as_hydra_passes_it():
    net = {"_target_": f"{MODULE}.ConfiguredNet", "cfg": {"width": 3}}
    ours = {"_target_": "accelsweep.workloads.lightning_modules.Supervised", "network": net, "inputs": ["x"]}
    assert build_module(config_with(model=ours, optimizer=SGD)).network.in_features == 3
    with pytest.raises(AttributeError, match="has no attribute 'width'"):
        build_module(config_with(model={**ours, "network": {**net, "_convert_": "all"}}, optimizer=SGD))


def test_the_users_callback_gets_its_config_as_hydra_passes_it():
    trainer = {"strategy": "auto", "callbacks": [{"_target_": f"{MODULE}.Configured", "cfg": {"width": 3}}]}
    built = targets.instantiate(trainer)
    assert (type(built), built["callbacks"][0].cfg.width) == (dict, 3)


def test_a_target_that_is_not_to_be_built_is_passed_as_written():
    node = {"_recursive_": False, "inner": {"_target_": "torch.optim.Adam", "lr": 1}}
    assert build_module(config("Configured", of_model=node)).inner == {"_target_": "torch.optim.Adam", "lr": 1}


def test_the_error_for_an_optimizer_within_a_module_says_to_make_it_partial():
    adam = {"_target_": "torch.optim.Adam", "lr": 1}
    message = r"model.inner: torch.optim.Adam requires params: .* add model.inner._partial_=true"
    with pytest.raises(InputError, match=message):
        build_module(config("Configured", of_model={"inner": adam}))
    module = build_module(config("Configured", of_model={"inner": {**adam, "_partial_": True}}))
    assert module.inner([torch.nn.Parameter()]).defaults["lr"] == 1


def test_data_gets_the_batch_size_and_the_seed_of_the_run():
    data = build_data(config(), seed=7)
    assert (data.batch_size, data.seed) == (16, 7)


def test_a_seed_that_the_config_fixes_stays():
    assert build_data(config(of_data={"seed": 3}), seed=7).seed == 3


def test_data_with_any_keyword_arguments_gets_the_batch_size_only():
    assert build_data(config(data="Anything"), seed=7).settings == {"batch_size": 16}


@pytest.mark.parametrize("name", ["Attribute", "Hyperparameter"])
def test_data_without_such_an_argument_has_its_batch_size_set_as_lightning_does_it(name):
    data = build_data(config(data=name), seed=7)
    assert (data.batch_size if name == "Attribute" else data.hparams.batch_size) == 16


def test_data_without_any_batch_size_is_built_and_left_to_the_check_of_its_first_batch():
    assert not hasattr(build_data(config(data="NoBatchSize"), seed=7), "batch_size")


def test_only_data_that_names_a_device_gets_it():
    assert build_data(config(data="OnDevice"), seed=7, device=torch.device("cpu")).device == torch.device("cpu")
    assert build_data(config(data="Data"), seed=7, device=torch.device("cpu")).seed == 7


def test_a_module_that_brings_its_own_data_gets_the_batch_size():
    own_data = config("WithData", of_data={"_target_": "accelsweep.workloads.data_module.ModuleData"})
    data, module = build_data(own_data, seed=1), build_module(own_data)
    data.serve(module)
    assert list(data.train_dataloader()) == [16]
    assert list(data.val_dataloader()) == []
    data.serve(build_module(config("Bare")))
    with pytest.raises(InputError, match="Bare defines no train_dataloader"):
        data.train_dataloader()


def test_prepare_data_is_called_once_also_that_of_the_module():
    with_data = config("WithData", seed=1)
    prepare_data(with_data)
    assert type(build_module(with_data)).prepared == 1


def test_data_that_needs_a_device_is_prepared_on_the_cpu():
    prepare_data(config("Bare", data="OnDevice", seed=1))


def test_a_second_batch_size_in_the_data_config_is_refused():
    with pytest.raises(InputError, match="remove it"):
        build_data(config(of_data={"batch_size": 8}), seed=7)


def made_optimizer(batch_size=64, devices=1, num_nodes=1, accumulate=1, **options):
    """Return what configure_optimizer makes of SGD with lr=0.1 and these options."""
    keys = {"batch_size": batch_size, "devices": devices, "num_nodes": num_nodes}
    with_options = config_with(**keys, optimizer={**SGD, "lr": 0.1, **options})
    return configure_optimizer(torch.nn.Linear(2, 1), with_options, lambda: accumulate)


def test_the_global_batch_counts_ranks_nodes_and_accumulated_batches():
    keys = {"batch_size": 8, "devices": 2, "num_nodes": 3, "accumulate": 4}
    optimizer = made_optimizer(**keys, lr_scaling="linear", base_batch_size=192)
    assert optimizer.defaults["lr"] == pytest.approx(0.1)


@pytest.mark.parametrize(
    ("scaling", "expected"),
    [("none", 0.1), ("linear", 0.1 * 4), ("sqrt", 0.1 * 2)],
    ids=["none", "Goyal et al. 2017", "Krizhevsky 2014"],
)
def test_the_learning_rate_follows_the_global_batch(scaling, expected):
    optimizer = made_optimizer(devices=2, accumulate=2, lr_scaling=scaling, base_batch_size=64)
    assert optimizer.defaults["lr"] == pytest.approx(expected)


def test_a_smaller_batch_than_the_base_lowers_the_rate():
    assert scaled_learning_rate(0.1, "linear", 16, 64) == pytest.approx(0.025)
    assert scaled_learning_rate(0.1, "sqrt", 16, 64) == pytest.approx(0.05)


def test_a_scaling_without_a_base_or_a_rate_is_refused():
    with pytest.raises(InputError, match=r"needs optimizer.base_batch_size"):
        made_optimizer(lr_scaling="sqrt", base_batch_size=None)
    without_rate = {"_target_": "torch.optim.Adadelta", "lr_scaling": "linear", "base_batch_size": 8}
    with pytest.raises(InputError, match=r"scales optimizer.lr, which is not set"):
        configure_optimizer(torch.nn.Linear(2, 1), config_with(optimizer=without_rate))


def test_the_rate_warms_up_in_equal_steps_to_the_scaled_one_and_stays():
    made = made_optimizer(lr_scaling="linear", base_batch_size=32, warmup_steps=4)
    assert made["lr_scheduler"]["interval"] == "step"
    optimizer, schedule, rates = made["optimizer"], made["lr_scheduler"]["scheduler"], []
    for _ in range(6):
        rates.append(optimizer.param_groups[0]["lr"])
        optimizer.step()
        schedule.step()
    assert rates == pytest.approx([0.05, 0.1, 0.15, 0.2, 0.2, 0.2])


def test_without_warm_up_there_is_no_schedule():
    assert isinstance(made_optimizer(warmup_steps=0), torch.optim.SGD)


def test_frozen_parameters_are_left_out():
    layer = torch.nn.Linear(2, 1)
    layer.bias.requires_grad_(False)
    (group,) = configure_optimizer(layer, config_with(optimizer=SGD)).param_groups
    assert len(group["params"]) == 1


def test_fused_and_foreach_reach_torch_and_exclude_each_other():
    assert made_optimizer(fused=True).defaults["fused"] is True
    assert made_optimizer(foreach=True).defaults["foreach"] is True
    with pytest.raises(Unsupported, match="are mutually exclusive"):
        made_optimizer(fused=True, foreach=True)


def test_a_fused_variant_that_torch_refuses_is_unsupported():
    with pytest.raises(Unsupported, match=r"optimizer.fused=true is not supported here: .*differentiable"):
        made_optimizer(fused=True, differentiable=True)


def shipped_optimizer(name):
    return yaml.safe_load((shipped_root() / "conf" / "optimizer" / f"{name}.yaml").read_text())


@pytest.mark.parametrize("name", ["Adagrad", "Adamax", "NAdam", "RAdam", "RMSprop", "Rprop"])
def test_any_class_of_torch_can_be_named(name):
    options = shipped_optimizer("own") | {"_target_": f"torch.optim.{name}", "lr": 0.03, "warmup_steps": 2}
    optimizer = configure_optimizer(torch.nn.Linear(2, 1), config_with(optimizer=options))["optimizer"]
    assert type(optimizer).__name__ == name
    assert optimizer.defaults["lr"] == 0.03


@pytest.mark.parametrize("name", ["sgd", "adam", "adamw"])
def test_every_shipped_optimizer_takes_its_keys_and_has_the_same_axes(name):
    options = shipped_optimizer(name)
    assert {"lr", "fused", "foreach", "lr_scaling", "base_batch_size", "warmup_steps"} <= set(options)
    assert options["lr_scaling"] in LR_FACTORS
    optimizer = configure_optimizer(torch.nn.Linear(2, 1), config_with(optimizer=options))
    assert type(optimizer).__name__.lower() == name


def test_every_scaling_has_a_factor():
    assert tuple(LR_FACTORS) == get_args(Scaling)
