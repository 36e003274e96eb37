"""Fixtures for running a single rank in this process."""

from __future__ import annotations

import functools
import gc
import itertools
import time

import pytest
from one_rank import make_spec, place_of_a_rank

from accelsweep.records.run_files import read_rank_result

NUMBERS = itertools.count()


TICK_SECONDS = 1e-5


@pytest.fixture(scope="session")
def ceilings(tmp_path_factory):
    """Return a block's cache of matmul ceilings, filled by a first run in this process.

    What that run imported is then frozen, as in a forked rank: a rank collects garbage twice, which takes 0.4 s each
    time if torch and Lightning are traversed.
    """
    from accelsweep.worker.main import run_rank

    folder = tmp_path_factory.mktemp("first")
    with place_of_a_rank(folder):
        run_rank(make_spec(folder, ceilings=folder / "ceilings.json"))
    gc.collect()
    gc.freeze()
    return folder / "ceilings.json"


@pytest.fixture
def spec(tmp_path, ceilings):
    return functools.partial(make_spec, tmp_path, ceilings=ceilings)


@pytest.fixture
def ticking(ceilings, monkeypatch):
    """A clock that advances by 10 us whenever it is read, so that measurements are the same on every machine."""
    ticks = itertools.count()
    monkeypatch.setattr(time, "perf_counter", lambda: next(ticks) * TICK_SECONDS)


@pytest.fixture
def run(spec, tmp_path):
    """Run a single rank in this process and return its result."""
    from accelsweep.worker.main import run_rank

    def go(**changes):
        made = spec(**changes)
        run_rank(made)
        return read_rank_result(made.rank_result(0))

    with place_of_a_rank(tmp_path):
        yield go


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
