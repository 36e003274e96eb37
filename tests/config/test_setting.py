"""A setting is named by what decides its measurement and by nothing else; its labels."""

import os
import subprocess
import sys

import pytest
from example_sweep import config_of

from accelsweep.config.schema import MODELS, checked_config
from accelsweep.config.setting import (
    PLAN_KEYS,
    abbreviate_home,
    expand_home,
    label,
    scientific,
    series_label,
    setting_name,
    setting_names,
    shared_devices,
    shared_label,
)
from accelsweep.run_config import LearningRate, Measure, SettingConfig

CONFIG = {"accelerator": "cpu", "batch_size": 32, "model": {"_target_": "m.Net", "width": 8}, "site": {"name": "local"}}


@pytest.mark.parametrize("key", sorted(PLAN_KEYS))
def test_plan_keys_are_no_part_of_a_settings_name(key):
    assert setting_name(CONFIG | {key: "changed"}) == setting_name(CONFIG)


@pytest.mark.parametrize("change", [{"batch_size": 33}, {"model": {"_target_": "m.Net", "width": 9}}, {"new_key": 1}])
def test_every_other_key_is_part_of_a_settings_name(change):
    assert setting_name(CONFIG | change) != setting_name(CONFIG)


MEASURE = {"warmup_steps": 5, "min_steps": 20, "min_seconds": 0.1, "max_steps": 60}


@pytest.mark.parametrize(
    "change",
    [
        {"threads": None},
        {"env": {}},
        {"task": "train_throughput"},
        {"measure": MEASURE | {"concurrency": 1, "headroom": 0.1}},
        {"optimizer": {"_target_": "torch.optim.SGD", "lr": 0.1, "lr_scaling": None}},
    ],
)
def test_a_key_at_its_default_is_no_part_of_a_settings_name(change):
    given = CONFIG | {"measure": MEASURE, "optimizer": {"_target_": "torch.optim.SGD", "lr": 0.1}}
    assert setting_name(given | change) == setting_name(given)


@pytest.mark.parametrize(
    ("change", "default"),
    [
        ({"threads": 1}, {}),
        ({"measure": MEASURE | {"fake_loader": True}}, {"measure": MEASURE}),
        ({"measure": MEASURE | {"probe_steps": 0}}, {"measure": MEASURE}),  # 0 is not False, and null is the default
    ],
)
def test_a_key_at_another_value_is_part_of_a_settings_name(change, default):
    assert setting_name(CONFIG | change) != setting_name(CONFIG | default)


@pytest.mark.parametrize("keys_first", [False, True])
def test_settings_of_a_grid_have_the_names_that_each_has_alone(keys_first):
    """Parts are shared, equal or different, at a default or not, and in any order."""
    shared = {"measure": MEASURE, "optimizer": {"_target_": "torch.optim.SGD", "lr": 0.1}, "mine": "ä\n"}
    changes = [{}, {"batch_size": 33}, {"threads": 1}, {"threads": None}, {"loader": {}}, {"a": {}}, {"z": [1.0, 1]}]
    changes += [{"measure": MEASURE | {"headroom": 0.1}}, {"measure": MEASURE | {"probe_steps": 0}}, {"repeats": 5}]
    configs = [change | CONFIG | shared if keys_first else CONFIG | shared | change for change in changes]
    name_of = setting_names()
    assert [name_of(config) for config in configs] == [setting_name(config) for config in configs]


def test_the_defaults_are_those_that_named_all_settings_so_far():
    """A changed default would give other settings the names of old ones: add a key instead."""
    defaults = {
        "num_nodes": 1,
        "launcher": "fork",
        "threads": None,
        "env": {},
        "task": "train_throughput",
        "optimizer": None,
        "trainer": {},
    }
    measure = {
        "concurrency": 1,
        "probe_steps": None,
        "matmul_steps": None,
        "fake_loader": False,
        "quality_samples": None,
        "quality_metric": None,
        "quality_better": "max",
        "target": None,
        "validate_every_samples": None,
        "max_samples": None,
        "scenario": "offline",
        "headroom": 0.1,
        "max_batch": 65536,
        "batch_resolution": 0.01,
        "rank_memory_bytes": None,
    }
    learning_rate = {"lr_scaling": None, "base_batch_size": None, "warmup_steps": None}
    for declared, named in ((SettingConfig, defaults), (Measure, measure), (LearningRate, learning_rate)):
        fields = MODELS[declared].model_fields
        now = {name: field.get_default(call_default_factory=True) for name, field in fields.items()}
        assert {name: now[name] for name in named} == named


def in_a_mapping(path):
    return {"data": {"root": path}}


def in_a_list(path):
    return {"data": {"roots": ["other", {"train": path}]}}


def in_a_variable(path):
    return {"env": {"DATA": path}}


@pytest.mark.parametrize("at", [in_a_mapping, in_a_list, in_a_variable])
def test_a_path_counts_in_full_anywhere_in_a_config(at):
    paths = ["/nfs/imagenet", "/nvme/imagenet", "/nfs/cifar", "/nfs/a/imagenet", "/imagenet"]
    assert len({setting_name(at(path)) for path in paths}) == len(paths)


@pytest.mark.parametrize("at", [in_a_mapping, in_a_list, in_a_variable])
def test_a_path_below_the_working_folder_survives_a_move_and_is_expanded_in_a_run(at, tmp_path):
    old, new = tmp_path / "old", tmp_path / "new"
    for home in (old, new):
        home.mkdir()
    frozen = abbreviate_home(at(f"{old}/sets/a/"), old)
    assert frozen == at("{home}/sets/a/")
    assert frozen == abbreviate_home(at(f"{new}/sets/a/"), new)
    assert expand_home(frozen, new) == at(f"{new}/sets/a/")


def test_a_path_through_a_symbolic_link_to_the_working_folder_is_abbreviated(tmp_path):
    (home := tmp_path / "real" / "project").mkdir(parents=True)
    (tmp_path / "logical").symlink_to(tmp_path / "real")
    assert abbreviate_home(f"{tmp_path}/logical/project/sets", home) == "{home}/sets"
    assert abbreviate_home(str(home), home) == "{home}"


@pytest.mark.parametrize("text", ["/{}/../data", "/{}-of-another", "{}", "sets/a", "file:///{}/sets", "/{}/a\nb", ""])
def test_text_that_is_no_path_below_the_working_folder_is_unchanged(text, tmp_path):
    whole = text.format(str(tmp_path).lstrip("/"))
    assert abbreviate_home({"key": whole}, tmp_path) == {"key": whole}


def test_a_settings_name_is_the_same_in_another_process_with_another_hash_seed():
    code = f"from accelsweep.config.setting import setting_name; print(setting_name({CONFIG!r}))"
    names = {
        subprocess.run(
            [sys.executable, "-c", code],
            env=os.environ | {"PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout.strip()
        for seed in ("0", "1")
    }
    assert names == {setting_name(CONFIG)}


def test_one_and_one_point_zero_are_different_values():
    assert setting_name({"lr": 1}) != setting_name({"lr": 1.0})


def test_scientific_keeps_user_keys():
    assert scientific({"mine": 1, "repeats": 3}) == {"mine": 1}


@pytest.mark.parametrize(
    ("axes", "text"),
    [
        (
            {"accelerator": "cuda", "devices": 2, "batch_size": 256, "precision": "bf16-mixed"},
            "batch 256, bf16-mixed, 2 GPUs",
        ),
        (
            {"accelerator": "cpu", "devices": 1, "precision": "32-true", "batch_size": 128},
            "batch 128, 32-bit, 1 process",
        ),
        ({"accelerator": "cuda:a100", "devices": 2}, "2 a100 GPUs"),
        ({"devices": 2}, "2 devices"),
        ({"batch_size": 8, "model.width": 64, "optimizer.lr": 0.1}, "batch 8, width=64, lr=0.1"),
        ({"threads": None, "loop": "raw", "model.compile": True}, "threads=null, loop=raw, compile=true"),
        ({"rung": "7_mixed_precision"}, "mixed precision"),
        ({}, "the only setting"),
    ],
)
def test_a_name_says_what_the_setting_has_on_each_axis(axes, text):
    assert label(axes) == text


def test_keys_that_end_in_the_same_word_keep_their_full_names():
    assert label({"model.name": "a", "data.name": "b"}) == "model.name=a, data.name=b"


def test_a_device_kind_without_a_count_is_no_statement_about_the_count():
    """What is not swept may be any number: the heading says which."""
    assert [label({"accelerator": kind}) for kind in ("cpu", "cuda", "mps")] == ["CPU", "GPU", "Apple GPU"]


def test_a_series_is_named_by_what_its_settings_share():
    axes = {"accelerator": "cuda", "devices": 2, "batch_size": 64, "precision": "32-true"}
    assert series_label(axes, ("devices", "batch_size"), "global batch 128") == "32-bit, GPU, global batch 128"
    assert series_label({"devices": 2}, ("devices",)) == "all settings"


def test_a_heading_names_what_no_label_has_only_if_all_settings_share_it():
    used = [{"precision": "32-true", "batch_size": size} for size in (32, 64)]
    assert shared_label(("devices",), used) == "32-bit"
    assert shared_label(("precision", "batch_size"), used) == ""


@pytest.mark.parametrize(
    ("axes", "devices", "said"),
    [
        (("batch_size",), [("cpu", 1)], " on 1 process"),
        (("devices",), [("cuda", 1), ("cuda", 2)], " on GPU"),
        (("accelerator", "devices"), [("cuda", 1), ("cpu", 2)], ""),
        (("accelerator",), [("cuda", 2), ("cpu", 2)], " on 2 devices"),
        (("accelerator",), [("cuda", 1), ("cpu", 1)], " on 1 device"),
        (("rung",), [("cuda", 1), ("cuda", 2)], " on GPU"),
        (("rung",), [], ""),
    ],
)
def test_a_heading_names_the_devices_that_no_label_has(axes, devices, said):
    configs = [
        checked_config(config_of({"batch_size": 32, "precision": "32-true", "devices": count}) | {"accelerator": kind})
        for kind, count in devices
    ]
    assert shared_devices(axes, configs) == said
