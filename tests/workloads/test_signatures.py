"""The arguments that a target takes, those included that it hands on."""

from __future__ import annotations

from inspect import Parameter

import pytest
from tiny_sweep import config_with

from accelsweep.errors import InputError
from accelsweep.workloads.datasets import RandomImages
from accelsweep.workloads.image_models import ResNet50
from accelsweep.workloads.instantiate import build_module, signature_parameters


def test_keys_that_are_handed_on_count_as_arguments():
    assert {"blocks", "compile", "channels_last"} <= set(signature_parameters(ResNet50))
    assert {"image_size", "batch_size", "seed", "device", "placement"} <= set(signature_parameters(RandomImages))
    assert Parameter.VAR_KEYWORD not in {parameter.kind for parameter in signature_parameters(RandomImages).values()}


def test_what_takes_anything_still_takes_anything():
    def anything(first, **others):
        return first, others

    def typed(**others: NotThere):  # noqa: F821  as under `if TYPE_CHECKING`
        return others

    for target in (anything, typed):
        assert signature_parameters(target)["others"].kind is Parameter.VAR_KEYWORD


def test_a_misspelt_key_of_a_model_is_refused_with_the_nearest():
    config = config_with(model={"_target_": "accelsweep.workloads.image_models.MLP", "chanels_last": True})
    with pytest.raises(InputError, match="channels_last"):
        build_module(config)
