"""The key `serving` in a setting's name."""

from accelsweep.config.setting import setting_name
from accelsweep.features.serving.options import Serving

CONFIG = {"accelerator": "cpu", "batch_size": 1}


def test_a_served_setting_has_another_name_and_keys_at_their_default_are_no_part_of_it():
    assert setting_name(CONFIG | {"serving": None}) == setting_name(CONFIG)
    assert setting_name(CONFIG | {"serving": {}}) != setting_name(CONFIG)
    assert setting_name(CONFIG | {"serving": {"latency_ms": 50.0, "workers": 1}}) == setting_name(
        CONFIG | {"serving": {}}
    )
    assert setting_name(CONFIG | {"serving": {"workers": 2}}) != setting_name(CONFIG | {"serving": {}})


def test_the_defaults_are_those_that_named_all_settings_so_far():
    assert Serving().model_dump() == {
        "latency_ms": 50.0,
        "latency_percentile": 0.99,
        "max_wait_ms": 0.0,
        "workers": 1,
        "generator": "own",
    }
