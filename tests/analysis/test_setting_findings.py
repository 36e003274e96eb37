"""The parts of a setting's finding: its bottleneck, the command that measures it again, the Trainer call."""

from __future__ import annotations

import shlex
from types import ModuleType, SimpleNamespace

import pytest

from accelsweep.analysis.setting_findings import bottleneck_of, rerun_command, trainer_call
from accelsweep.config.schema import checked_config
from accelsweep.records.plan import MeasuredProject
from accelsweep.results import PARTS
from accelsweep.run_config import SettingConfig


def test_the_command_replaces_the_axes_and_the_baseline_and_keeps_the_other_overrides(simulated: ModuleType) -> None:
    axes = {"batch_size": 64, "model.width": None, "model.name": "it's a b"}
    overrides = (
        "experiment=x",
        "batch_size=32,64",
        "+model.width=null,4",
        "measure.min_steps=9",
        "baseline.batch_size=32",
    )
    manifest = simulated.make_manifest([axes], 1).model_copy(update={"overrides": overrides})
    command = shlex.split(rerun_command(manifest, manifest.settings[0]))
    assert command[:4] == ["accelsweep", "run", "experiment=x", "measure.min_steps=9"]
    assert command[4:7] == ["batch_size=64", "+model.width=null", "model.name='it\\'s a b'"]
    assert command[7:] == ["baseline=null", "--name", f"simulated-{manifest.settings[0].name[:6]}"]


def test_the_command_of_a_setting_of_a_script_keeps_the_prefix_of_a_key_that_both_configs_have(
    simulated: ModuleType,
) -> None:
    overrides = ("project.seed=1,2", "sweep.name=x", "batch_size=8")
    manifest = simulated.make_manifest([{"seed": 2}], 1)
    entry = MeasuredProject(command="python train.py", kind="script", typed="python train.py")
    manifest = manifest.model_copy(update={"overrides": overrides, "entry": entry})
    command = shlex.split(rerun_command(manifest, manifest.settings[0]))
    assert command[2:5] == ["sweep.name=x", "batch_size=8", "project.seed=2"]
    assert command[6:8] == ["--entry", "python train.py"]


def config(simulated: ModuleType, **changes: object) -> SettingConfig:
    return checked_config({**simulated.CONFIG, "task": "train_throughput", "optimizer": {}, **changes})


def test_the_trainers_arguments_can_be_pasted(simulated: ModuleType) -> None:
    own = {"strategy": "auto", "benchmark": True, "plugins": [{"_target_": "mine.Plugin", "name": 'a "b"'}]}
    assert trainer_call(config(simulated, devices=2, num_nodes=3, trainer=own)) == (
        'Trainer(accelerator="cpu", devices=2, num_nodes=3, precision="32-true", benchmark=True, '
        'plugins=[Plugin(name="a \\"b\\"")])'
    )


def test_trees_have_no_trainer(simulated: ModuleType) -> None:
    assert trainer_call(config(simulated, task="boosting")) is None


def test_the_raw_loop_has_no_trainer(simulated: ModuleType) -> None:
    assert trainer_call(config(simulated, loop="raw")) is None


class Run:
    def __init__(self, **shares):
        self._shares = {f"{part}_share": share for part, share in shares.items()}

    def value(self, metric):
        return self._shares.get(metric)


def setting(*runs, behind=()):
    return SimpleNamespace(measured=runs, values=lambda _metric: list(behind))


def whole(**given):
    return Run(**{**dict.fromkeys(PARTS, 0.0), **given})


def test_runs_count_alike():
    found = bottleneck_of(setting(whole(forward=0.9, data_wait=0.1), whole(forward=0.3, data_wait=0.7)))
    assert found.shares["forward"] == pytest.approx(0.6)
    assert (found.verdict, found.count) == ("compute-bound and input-bound", 2)


def test_a_setting_without_a_probe_pass_has_no_bottleneck():
    assert bottleneck_of(setting(Run(), Run())) is None


def test_a_part_that_was_not_separated_is_absent_rather_than_zero():
    run = Run(**dict.fromkeys(("forward", "backward"), 0.5))
    assert set(bottleneck_of(setting(run, whole(forward=1.0))).shares) == {"forward", "backward"}


def test_a_device_that_waits_for_the_host_shows_over_all_runs():
    found = bottleneck_of(setting(whole(forward=1.0), whole(forward=1.0), behind=[0.1, 0.3]))
    assert found.verdict == "overhead-bound"
    assert "20 %" in found.evidence
