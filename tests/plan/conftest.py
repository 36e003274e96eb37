"""Small config folders of the tests' own, and a working directory that sees the shipped ones."""

from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path

import pytest

from accelsweep.config.hydra import Composer
from accelsweep.devices import kinds
from accelsweep.devices.device_kind import Device
from accelsweep.planning.plan import Plan, make_plan

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


def write_conf(folder: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return folder


@pytest.fixture(scope="session")
def conf(tmp_path_factory: pytest.TempPathFactory, unchanged_folders: set[str]) -> Path:
    """A config folder that is complete for Hydra, though no real sweep could be run from it."""
    folder = write_conf(tmp_path_factory.mktemp("small") / "conf", CONF)
    unchanged_folders.add(str(folder))
    return folder


@pytest.fixture
def composer(conf: Path) -> Composer:
    return Composer([conf])


def declare_two_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    cpu = Device(accelerator="cpu", model="Test CPU", count=2, memory_bytes=8 * 2**30)
    monkeypatch.setattr(kinds, "inventory", lambda: (cpu,))


@pytest.fixture
def two_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine with two CPU cores and no GPU, whatever the tests run on."""
    declare_two_cores(monkeypatch)


@pytest.fixture(scope="module")
def plan_of(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[..., Plan]]:
    """A function that plans these overrides of the shipped config on two cores; each plan is made once and shared."""
    home = tmp_path_factory.mktemp("planned")
    with pytest.MonkeyPatch.context() as patch:
        declare_two_cores(patch)
        yield cache(lambda *overrides: make_plan(home, overrides))


@pytest.fixture
def home(tmp_path: Path, two_cores: None) -> Path:
    """A user's working directory on that machine; the shipped `conf/` is what it sees."""
    return tmp_path


@pytest.fixture
def own_conf(home: Path):
    """Write the user's own config files below the working directory."""
    return lambda files: write_conf(home / "conf", files)
