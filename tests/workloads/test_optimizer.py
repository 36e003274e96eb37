"""The config's optimiser: what reaches torch, how the learning rate follows the batch, and how it grows."""

from __future__ import annotations

from typing import get_args

import pytest
import torch
import yaml
from tiny_sweep import config_with

from accelsweep.config.schema import Scaling
from accelsweep.errors import InputError, Unsupported
from accelsweep.installation import shipped_root
from accelsweep.workloads.instantiate import LR_FACTORS, configure_optimizer, scaled_learning_rate

SGD = {"_target_": "torch.optim.SGD", "_partial_": True, "lr": 0.1}


def config(batch_size=64, devices=1, num_nodes=1, **optimizer):
    return config_with(
        batch_size=batch_size,
        devices=devices,
        num_nodes=num_nodes,
        optimizer={**SGD, **optimizer},
    )


def made(accumulate=1, **settings):
    found = configure_optimizer(torch.nn.Linear(2, 1), config(**settings), lambda: accumulate)
    return found["optimizer"] if isinstance(found, dict) else found


def test_the_global_batch_counts_ranks_nodes_and_accumulated_steps():
    many = {"batch_size": 8, "devices": 2, "num_nodes": 3, "accumulate": 4}
    assert made(**many, lr_scaling="linear", base_batch_size=192).defaults["lr"] == pytest.approx(0.1)


@pytest.mark.parametrize(
    ("scaling", "expected"),
    [("none", 0.1), ("linear", 0.1 * 4), ("sqrt", 0.1 * 2)],
    ids=["none", "Goyal et al. 2017", "Krizhevsky 2014"],
)
def test_the_learning_rate_follows_the_global_batch(scaling, expected):
    assert made(devices=2, accumulate=2, lr_scaling=scaling, base_batch_size=64).defaults["lr"] == pytest.approx(
        expected
    )


def test_a_smaller_batch_than_the_base_lowers_the_rate():
    assert scaled_learning_rate(0.1, "linear", 16, 64) == pytest.approx(0.025)
    assert scaled_learning_rate(0.1, "sqrt", 16, 64) == pytest.approx(0.05)


def test_scalings_that_mean_nothing_are_refused():
    with pytest.raises(InputError, match=r"needs optimizer.base_batch_size"):
        made(lr_scaling="sqrt", base_batch_size=None)
    with pytest.raises(InputError, match=r"scales optimizer.lr, which is not set"):
        configure_optimizer(
            torch.nn.Linear(2, 1),
            config_with(optimizer={"_target_": "torch.optim.Adadelta", "lr_scaling": "linear", "base_batch_size": 8}),
        )


def test_the_rate_grows_in_equal_steps_to_the_scaled_one_and_stays():
    found = configure_optimizer(torch.nn.Linear(2, 1), config(lr_scaling="linear", base_batch_size=32, warmup_steps=4))
    assert found["lr_scheduler"]["interval"] == "step"
    optimizer, schedule, seen = found["optimizer"], found["lr_scheduler"]["scheduler"], []
    for _ in range(6):
        seen.append(optimizer.param_groups[0]["lr"])
        optimizer.step()
        schedule.step()
    assert seen == pytest.approx([0.05, 0.1, 0.15, 0.2, 0.2, 0.2])


def test_without_warm_up_there_is_no_schedule_to_pay_for():
    assert isinstance(configure_optimizer(torch.nn.Linear(2, 1), config(warmup_steps=0)), torch.optim.SGD)


def test_frozen_parameters_are_left_out():
    layer = torch.nn.Linear(2, 1)
    layer.bias.requires_grad_(False)
    assert [len(group["params"]) for group in configure_optimizer(layer, config()).param_groups] == [1]


def test_fused_and_foreach_reach_torch_and_exclude_each_other():
    assert made(fused=True).defaults["fused"] is True
    assert made(foreach=True).defaults["foreach"] is True
    with pytest.raises(Unsupported, match="exclude each other"):
        made(fused=True, foreach=True)


def test_a_fused_variant_that_torch_refuses_is_an_answer():
    with pytest.raises(Unsupported, match=r"optimizer.fused=true is not possible here: .*differentiable"):
        made(fused=True, differentiable=True)


@pytest.mark.parametrize("name", ["Adagrad", "Adamax", "NAdam", "RAdam", "RMSprop", "Rprop"])
def test_any_class_of_torch_can_be_named(name):
    settings = yaml.safe_load((shipped_root() / "conf" / "optimizer" / "own.yaml").read_text())
    stated = settings | {"_target_": f"torch.optim.{name}", "lr": 0.03, "warmup_steps": 2}
    made = configure_optimizer(torch.nn.Linear(2, 1), config_with(optimizer=stated))
    assert type(made["optimizer"]).__name__ == name
    assert made["optimizer"].defaults["lr"] == 0.03


@pytest.mark.parametrize("name", ["sgd", "adam", "adamw"])
def test_every_shipped_optimizer_takes_its_keys_and_has_the_same_axes(name):
    settings = yaml.safe_load((shipped_root() / "conf" / "optimizer" / f"{name}.yaml").read_text())
    assert {"lr", "fused", "foreach", "lr_scaling", "base_batch_size", "warmup_steps"} <= set(settings)
    optimizer = configure_optimizer(torch.nn.Linear(2, 1), config_with(optimizer=settings))
    assert type(optimizer).__name__.lower() == name
    assert tuple(LR_FACTORS) == get_args(Scaling)
    assert settings["lr_scaling"] in LR_FACTORS
