"""Each setting comes with the command that measures it again, and with the Trainer's arguments."""

from __future__ import annotations

import shlex
from types import ModuleType

from accelsweep.analysis.setting_findings import command_again, trainer_call
from accelsweep.config.schema import CellConfig


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
    command = shlex.split(command_again(manifest, manifest.cells[0]))
    assert command[:4] == ["accelsweep", "run", "experiment=x", "measure.min_steps=9"]
    assert command[4:7] == ["batch_size=64", "+model.width=null", "model.name='it\\'s a b'"]
    assert command[7:] == ["baseline=null", "--name", f"simulated-{manifest.cells[0].name[:6]}"]


def config(simulated: ModuleType, **changes: object) -> CellConfig:
    return CellConfig.model_validate({**simulated.CONFIG, "task": "train_throughput", "optimizer": {}, **changes})


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
