"""Which settings a figure selects if the config of some of them is not known."""

from __future__ import annotations

from typing import Any

import pytest

from accelsweep.analysis.run_results import RunRow, SettingRuns
from accelsweep.config.schema import checked_config
from accelsweep.features.claims.judge import select_settings
from accelsweep.records.plan import PlannedSetting
from accelsweep.results import Outcome
from accelsweep.run_environment import HardwareKind

SHARED: dict[str, Any] = {
    "accelerator": "cpu",
    "devices": 1,
    "batch_size": 32,
    "precision": "32-true",
    "seed": 0,
    "loop": "raw",
    "model": {},
    "data": {},
    "measure": {"warmup_steps": 5, "min_steps": 20, "min_seconds": 0.1, "max_steps": 200},
}


def setting(axes: dict[str, Any], config: dict[str, Any] | None = None) -> SettingRuns:
    """A setting with one run of this config, or an unsupported one."""
    why = None if config is not None else "not here"
    planned = PlannedSetting(name=str(axes), axes=axes, unsupported=why)
    return SettingRuns(planned, HardwareKind(), () if config is None else (run(str(axes), config),))


def run(name: str, config: dict[str, Any]) -> RunRow:
    return RunRow("s", name, Outcome.measured, {}, config=checked_config({**SHARED, **config}))


CPU = setting({"accelerator": "cpu"}, {"accelerator": "cpu", "batch_size": 64, "data": {"workers": 2}})
CUDA = setting({"accelerator": "cuda"})


@pytest.mark.parametrize(
    ("wanted", "settings"),
    [
        ({"accelerator": "cuda", "batch_size": 64}, (CUDA,)),
        ({"batch_size": 64, "data.workers": 2}, (CPU, CUDA)),
        ({"accelerator": "cuda", "batch_size": 32}, ()),
        ({"accelerator": "cuda", "batch": 64}, ()),
    ],
)
def test_a_key_that_is_no_axis_has_the_value_of_the_settings_that_can_run(wanted, settings) -> None:
    side = select_settings(wanted, [CPU, CUDA])
    assert (side.settings, side.known) == (settings, True)


def test_a_key_that_depends_on_an_axis_is_unknown_for_other_values_of_that_axis() -> None:
    """As `optimizer.lr: ${...}` would: it differs between the settings that can run."""
    groups = [setting({"batch_size": size}, {"batch_size": size, "lr": size / 100}) for size in (1, 2)]
    groups.append(setting({"batch_size": 3}))
    side = select_settings({"lr": 0.03}, groups)
    assert (side.settings, side.known) == ((groups[2],), False)
    assert select_settings({"lr": 0.01}, groups).settings == (groups[0],)


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        ({"rung": "0_naive"}, {"rung": "1_resident"}),
        ({"model": "mlp"}, {"model": "small_cnn"}),
        ({"env": {"A": 1}}, {"env": {"A": 2}}),
    ],
)
def test_a_config_group_or_a_mapping_says_nothing_about_another_choice(ours, theirs) -> None:
    """Of `rung` the config has no key, of `model` a mapping, and `env` itself is one."""
    chosen = setting(ours, {"batch_size": 64, "model": {"width": 8}, "env": {"A": 1}})
    other = setting(theirs)
    assert select_settings({**theirs, "batch_size": 64}, [chosen, other]).known is False
    assert select_settings({"batch_size": 64}, [chosen, other]).settings == (chosen,)


def test_without_supported_settings_all_with_these_axes_may_match() -> None:
    groups = [CUDA, setting({"accelerator": "mps"})]
    assert select_settings({"batch_size": 64}, groups).settings == tuple(groups)
    side = select_settings({"accelerator": "cuda", "batch_size": 64}, groups)
    assert (side.settings, side.known) == ((CUDA,), False)


def test_a_setting_of_another_sweep_with_other_axes_is_ignored() -> None:
    """Sweeps that are read together keep their own fixed keys."""
    other = setting({"accelerator": "cpu", "seed": 1}, {"accelerator": "cpu", "seed": 1, "batch_size": 64})
    assert select_settings({"accelerator": "cuda", "batch_size": 64}, [other, CUDA]).known is False
