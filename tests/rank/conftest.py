"""What tests of this room share: a single rank in this process."""

from __future__ import annotations

import gc
import itertools
import sys

import pytest
from one_rank import CONFIG

from accelsweep.core.plans import Run
from accelsweep.rank.spec import RankResult, RunSpec

NUMBERS = itertools.count()


@pytest.fixture(scope="session")
def ceilings(tmp_path_factory):
    """Where the runs of a block keep how fast this machine multiplies, so that the first alone measures it."""
    return tmp_path_factory.mktemp("block") / "ceilings.json"


@pytest.fixture(scope="session")
def preloaded():
    """All that a rank imports, out of the garbage collector's sight, as where a supervisor forks it.

    A rank collects garbage twice, which takes 0.4 s each time while torch and Lightning have to be looked through.
    """
    from accelsweep.rank.rank import preload

    preload()
    gc.collect()
    gc.freeze()


@pytest.fixture
def spec(tmp_path, ceilings):
    def make(seed=1, axes=None, **changes):
        config = {**CONFIG, **changes}
        return RunSpec(
            sweep="s",
            block="b",
            run=Run.of("0123456789ab", 0, seed),
            position=0,
            attempt=1,
            config=config,
            axes=axes or {},
            world_size=config["devices"] * config["num_nodes"],
            attempt_folder=str(tmp_path),
            ceilings=str(ceilings),
        )

    return make


@pytest.fixture
def run(spec, preloaded, monkeypatch, tmp_path):
    """Run a single rank in this process and return its result."""
    import torch

    from accelsweep.rank.rank import run_rank

    for name, value in {"RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": "1", "OMP_NUM_THREADS": "1"}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.chdir(tmp_path)
    threads = torch.get_num_threads()

    def go(**changes):
        made = spec(**changes)
        run_rank(made)
        return RankResult.read(made.rank_result(0))

    yield go
    torch.set_num_threads(threads)


@pytest.fixture
def own_module(tmp_path):
    """Write the body of a user's training step; return the `model` config that names it."""

    def write(body, extra=""):
        name = f"own_module_{next(NUMBERS)}"
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
