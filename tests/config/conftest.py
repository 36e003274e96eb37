"""A small config folder of the tests' own, and the fixtures for planning."""

from pathlib import Path

import pytest
from planning_fixtures import home, own_conf, two_cores, write_files  # noqa: F401 - fixtures

from accelsweep.config.hydra import Composer

CONF = {
    "config.yaml": "defaults: [base, {model: small}, {optimizer: sgd}, {experiment: null}, _self_]\n",
    "base.yaml": """\
accelerator: cpu
batch_size: 32
seed: 1
note: plain
pair: [1, 2]
env: {}
trainer: {strategy: auto, max_time: null}
doubled: ${model.width}
sentence: ${note} at ${batch_size}
repeats: 3
name: null
""",
    "model/small.yaml": "_target_: mine.Small\nwidth: 4\nrate: 0.5\nsize: ${batch_size}\ninner: {depth: 1}\n",
    "model/big.yaml": "_target_: mine.Big\nwidth: 16\nrate: 0.25\nsize: ${..seed}\ninner: {depth: 2}\n",
    "model/other.yaml": "_target_: mine.Other\nwidth: 8\n",
    "optimizer/sgd.yaml": "_target_: torch.optim.SGD\nlr: 0.1\n",
    "optimizer/adam.yaml": "_target_: torch.optim.Adam\nlr: 0.001\nbetas: [0.9, 0.999]\n",
    "experiment/both.yaml": """\
# @package _global_
defaults: [{override /model: big}]
hydra:
  sweeper:
    params:
      batch_size: 8,16
      optimizer: sgd,adam
note: from the experiment
""",
    "experiment/added.yaml": """\
# @package _global_
hydra: {sweeper: {params: {+model.extra: "1,2", ~trainer.strategy: "auto", seed: "range(1,3)"}}}
""",
}


@pytest.fixture(scope="session")
def conf(tmp_path_factory: pytest.TempPathFactory, unchanged_folders: set[str]) -> Path:
    """A config folder that Hydra can compose, though no sweep could run with it."""
    folder = write_files(tmp_path_factory.mktemp("small") / "conf", CONF)
    unchanged_folders.add(str(folder))
    return folder


@pytest.fixture
def composer(conf: Path) -> Composer:
    return Composer([conf])
