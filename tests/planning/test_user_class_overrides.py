"""The user's own `_target_`: what it replaces, what it keeps, and the note about its optimizer."""

from __future__ import annotations

import pytest
import yaml

from accelsweep.config.hydra import Composer
from accelsweep.errors import InputError
from accelsweep.installation import config_folders
from accelsweep.planning.checked_grid import checked_grid
from accelsweep.planning.user_class_overrides import composed_yaml

MINE = """
# @package _global_
hydra:
  sweeper:
    params:
      batch_size: 64,256
model:
  _target_: mypackage.MyModule
  width: 32
data:
  _target_: mypackage.MyData
"""


def composed(home, *overrides):
    return yaml.safe_load(composed_yaml(home, overrides))


def settings(home, *overrides):
    grid = checked_grid(Composer(config_folders(home)), overrides, home)
    return [setting.config.raw for setting in grid.settings.values()], grid


def test_no_key_of_the_default_model_or_data_leaks_into_the_users_classes(home, own_conf):
    own_conf({"experiment/mine.yaml": MINE})
    found = composed(home, "experiment=mine")
    assert found["model"] == {"_target_": "mypackage.MyModule", "width": 32}
    assert found["data"] == {"_target_": "mypackage.MyData"}


def test_a_target_on_the_command_line_needs_no_plus_for_its_arguments(home):
    found = composed(home, "model._target_=mine.Module", "model.width=3", "data._target_=mine.Data", "+data.rows=4")
    assert found["model"] == {"_target_": "mine.Module", "width": 3}
    assert found["data"] == {"_target_": "mine.Data", "rows": 4}


def test_another_optimizer_keeps_the_learning_rate_keys_and_none_of_the_groups(home):
    found = composed(home, "optimizer._target_=torch.optim.RMSprop", "optimizer.lr=0.01", "optimizer.centered=true")
    ours = {"lr_scaling": "none", "base_batch_size": 32, "warmup_steps": 0}
    named = {"_target_": "torch.optim.RMSprop", "_partial_": True}
    assert found["optimizer"] == {**named, **ours, "lr": 0.01, "centered": True}


def test_only_the_group_with_a_given_target_is_replaced(home):
    found = composed(home, "model._target_=mine.Module")
    assert found["model"] == {"_target_": "mine.Module"}
    assert found["data"]["_target_"] == "accelsweep.workloads.datasets.Digits"


def test_an_explicit_choice_keeps_its_keys_under_another_target(home):
    found = composed(home, "model=mlp", "model._target_=mine.LikeMLP")
    assert found["model"] == {**composed(home, "model=mlp")["model"], "_target_": "mine.LikeMLP"}


def test_every_choice_of_a_swept_group_keeps_its_keys_even_the_default(home):
    found, _ = settings(home, "model=small_cnn,mlp", "model._target_=mine.Like", "data._target_=mine.Data")
    for setting, name in zip(found, ("small_cnn", "mlp"), strict=True):
        assert setting["model"] == {**composed(home, f"model={name}")["model"], "_target_": "mine.Like"}


def test_a_group_chosen_by_the_experiment_keeps_its_keys(home, own_conf):
    header = "# @package _global_\ndefaults:\n  - override /model: mlp\n"
    own_conf({"experiment/like.yaml": header + "model:\n  _target_: mine.LikeMLP\n"})
    assert composed(home, "experiment=like")["model"]["depth"] == composed(home, "model=mlp")["model"]["depth"]


def test_targets_and_their_arguments_are_axes(home):
    found, grid = settings(home, "model._target_=mine.A,mine.B", "model.width=1,2", "data._target_=mine.Data")
    assert grid.axes == ("model._target_", "model.width")
    assert [setting["model"] for setting in found] == [
        {"_target_": f"mine.{name}", "width": width} for name in ("A", "B") for width in (1, 2)
    ]


def test_targets_swept_by_the_experiment_replace_the_group_too(home, own_conf):
    swept = MINE.replace("batch_size: 64,256", "model._target_: mine.A,mine.B").replace("  width: 32\n", "")
    own_conf({"experiment/mine.yaml": swept})
    found, _ = settings(home, "experiment=mine")
    assert [setting["model"] for setting in found] == [{"_target_": "mine.A"}, {"_target_": "mine.B"}]


def test_a_misspelt_key_is_refused_if_no_target_is_given_with_it(home, own_conf):
    own_conf({"experiment/mine.yaml": MINE})
    with pytest.raises(InputError, match=r"unknown key 'model.widt'.*did you mean 'model.width'"):
        settings(home, "experiment=mine", "model.widt=7")


def test_a_network_in_a_chosen_wrapper_takes_its_arguments_without_plus(home):
    found = composed(home, "model=supervised", "model.network._target_=torch.nn.Linear", "model.network.in_features=4")
    assert found["model"]["network"] == {"_target_": "torch.nn.Linear", "in_features": 4}


def test_a_note_says_when_an_optimizer_applies_to_a_user_module(home):
    own = ["model._target_=mine.Module", "data._target_=mine.Data"]
    _, grid = settings(home, *own, "optimizer=adamw")
    assert any("applies only if mine.Module leaves configure_optimizers" in note for note in grid.notes)
    assert not any("configure_optimizers" in note for note in settings(home, *own)[1].notes)
    assert not any("configure_optimizers" in note for note in settings(home, "optimizer=adamw")[1].notes)
