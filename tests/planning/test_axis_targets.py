"""Where an axis goes in a script without a Lightning Trainer: what its options, flags and launcher reveal."""

from __future__ import annotations

import pytest

from accelsweep.planning.axis_targets import AxisTarget, script_target


@pytest.mark.parametrize(
    ("options", "option"),
    [
        ({"batch-size": 64}, "batch-size"),
        ({"per_device_train_batch_size": 8, "per_device_eval_batch_size": 8}, "per_device_train_batch_size"),
        ({"bs": None}, "bs"),
        ({"batchSize": 64}, "batchSize"),
    ],
)
def test_the_batch_size_goes_to_the_training_option(options, option):
    assert script_target("batch_size", options, {}, None) == AxisTarget(option)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"bf16": False, "fp16": False, "dtype": None}, {"32-true": "", "bf16-mixed": "--bf16", "16-mixed": "--fp16"}),
        ({"dtype": "bfloat16"}, {"32-true": "float32", "bf16-mixed": "bfloat16", "16-mixed": "float16"}),
        ({"mixed_precision": "no"}, {"32-true": "no", "bf16-mixed": "bf16", "16-mixed": "fp16"}),
    ],
)
def test_flags_win_over_options_and_defaults_reveal_the_words_for_precisions(options, words):
    target = script_target("precision", options, {}, None)
    assert target is not None
    assert target.values == words


def test_our_word_for_a_precision_is_never_passed_to_an_option_whose_words_are_unknown():
    assert script_target("precision", {"dtype": "half"}, {}, None) is None
    stated = script_target("precision", {"dtype": "half"}, {"16-mixed": "half"}, None)
    assert stated == AxisTarget("dtype", values={"16-mixed": "half"})


def test_torch_and_lightning_have_different_names_for_gpus():
    device = script_target("accelerator", {"device": "cuda"}, {}, None)
    accelerator = script_target("accelerator", {"accelerator": "gpu"}, {}, None)
    assert device is not None
    assert accelerator is not None
    assert device.values is not None
    assert accelerator.values is not None
    assert (device.values["cuda"], device.values["rocm"], device.values["cpu"]) == ("cuda", "cuda", "cpu")
    assert (accelerator.values["cuda"], accelerator.values["rocm"]) == ("gpu", "gpu")


def test_a_flag_for_the_cpu_leaves_every_other_device_to_the_script():
    target = script_target("accelerator", {"use_cpu": False}, {}, None)
    assert target is not None
    assert target.values is not None
    assert (target.values["cpu"], target.values["cuda"], target.values["mps"]) == ("--use_cpu", "", "")
    assert target.description.startswith("flags: cpu: --use_cpu, cuda: none")


def test_an_option_with_a_value_is_no_flag():
    target = script_target("accelerator", {"cpu": 4, "gpu": 0}, {}, None)
    assert target == AxisTarget(how="determines the devices that the script sees")


def test_fabric_and_accelerate_get_axes_from_the_variables_of_their_launchers():
    assert script_target("devices", {}, {}, "fabric") == AxisTarget(variable="LT_DEVICES")
    assert script_target("precision", {}, {}, "fabric") == AxisTarget(variable="LT_PRECISION")
    precision = script_target("precision", {}, {}, "accelerate")
    assert precision is not None
    assert (precision.name, precision.values) == (
        "env.ACCELERATE_MIXED_PRECISION",
        {"32-true": "no", "bf16-mixed": "bf16", "16-mixed": "fp16"},
    )
    assert script_target("batch_size", {}, {}, "fabric") is None


def test_without_an_option_the_started_ranks_and_the_visible_devices_are_what_a_script_gets():
    assert script_target("devices", {"devices": 1}, {}, None) == AxisTarget(how="determines the ranks")
    assert script_target("accelerator", {}, {}, None) == AxisTarget(how="determines the devices that the script sees")
    assert script_target("precision", {}, {}, None) is None
