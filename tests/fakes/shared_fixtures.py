"""Fixtures that several folders of tests import: a simulated sweep in memory, and a rank in this process."""

from __future__ import annotations

import functools
import itertools
import time
from types import ModuleType
from typing import Any

import pytest
import simulated_sweep
from one_rank import make_spec, place_of_a_rank

_CLOCK_STEP_SECONDS = 1e-5

_NUMBERS = itertools.count()


@pytest.fixture
def simulated() -> ModuleType:
    return simulated_sweep


@pytest.fixture(scope="session")
def ceilings(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """The matmul throughput file of this machine, after a first run in this process."""
    from accelsweep.worker.main import run_rank

    folder = tmp_path_factory.mktemp("first")
    with place_of_a_rank(folder):
        run_rank(make_spec(folder, ceilings=folder / "ceilings.json"))
    return folder / "ceilings.json"


@pytest.fixture
def spec(tmp_path: Any, ceilings: Any) -> Any:
    return functools.partial(make_spec, tmp_path, ceilings=ceilings)


@pytest.fixture
def ticking(ceilings: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """A clock that advances by 10 us at each reading, so that results are the same on every machine."""
    readings = itertools.count()
    monkeypatch.setattr(time, "perf_counter", lambda: next(readings) * _CLOCK_STEP_SECONDS)


@pytest.fixture
def run(spec: Any, tmp_path: Any) -> Any:
    """Run a single rank in this process and return its result."""
    from accelsweep.records.run_files import read_rank_result
    from accelsweep.results import RankResult
    from accelsweep.worker.main import run_rank

    def run_one(**changes: Any) -> RankResult:
        made = spec(**changes)
        run_rank(made)
        return read_rank_result(made.rank_result(0))

    with place_of_a_rank(tmp_path):
        yield run_one


@pytest.fixture
def own_module(tmp_path: Any) -> Any:
    """Write a user's LightningModule with this body of its training step; return the `model` config that names it."""

    def write(body: str, extra: str = "") -> dict[str, str]:
        name = f"feature_module_{next(_NUMBERS)}"
        (tmp_path / f"{name}.py").write_text(
            "import lightning.pytorch as pl, torch\n"
            "class Module(pl.LightningModule):\n"
            "    def __init__(self):\n"
            "        super().__init__()\n"
            "        self.weight = torch.nn.Parameter(torch.ones(1))\n"
            "    def training_step(self, batch, batch_idx):\n"
            f"        {body}\n{extra}"
        )
        return {"_target_": f"{name}.Module"}

    return write
