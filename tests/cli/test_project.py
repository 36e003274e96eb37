"""A recommendation as the user's own project reads it: values, choices of config groups, and a comment."""

from __future__ import annotations

import pytest
import yaml

from accelsweep.cli.project import _overlay
from accelsweep.errors import InputError
from accelsweep.records.findings import Choice
from accelsweep.run_config import EntryPoint

CHOICE = Choice(setting="0123456789ab", title="Best", sentence="1.4x as fast [1.3, 1.5].")


def overlay(kind, arguments, config):
    return _overlay("train", CHOICE, EntryPoint(kind, ("train.py",), arguments, config=config))


def test_a_hydra_overlay_holds_values_at_any_level_and_choices_as_defaults():
    arguments = ("lr=0.1", "experiment=wide", "model=dense", "data.batch_size=64", "++trainer.precision=bf16-mixed")
    text = overlay("hydra", arguments, {"lr": 0.2, "model": {"hidden": 8}, "data": {"batch_size": 32}})
    assert text.startswith("# @package _global_\n# accelsweep, ")
    assert "sweep train: 1.4x as fast [1.3, 1.5]." in text
    assert yaml.safe_load(text) == {
        "defaults": ["wide", {"override /model": "dense"}, "_self_"],
        "lr": 0.1,
        "data": {"batch_size": 64},
        "trainer": {"precision": "bf16-mixed"},
    }


def test_a_hydra_overlay_keeps_the_signs_of_choices_and_refuses_deletions():
    text = overlay("hydra", ("logger=null", "+aug=strong"), {"logger": {}, "aug": {}})
    assert yaml.safe_load(text)["defaults"] == [{"override /logger": None}, {"/aug": "strong"}, "_self_"]
    with pytest.raises(InputError, match=r"a config file cannot contain ~callbacks\.early"):
        overlay("hydra", ("~callbacks.early",), {})


def test_a_file_for_a_lightning_cli_holds_its_options():
    text = overlay("lightning_cli", ("--data.batch_size=64", "--trainer.precision=bf16-mixed"), {})
    assert yaml.safe_load(text) == {"data": {"batch_size": 64}, "trainer": {"precision": "bf16-mixed"}}
    assert not text.startswith("# @package")
