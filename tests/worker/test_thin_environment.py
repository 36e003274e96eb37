"""A run in an environment with torch and numpy, and with Lightning or not, without accelsweep's other dependencies."""

from __future__ import annotations

import json
import os
import subprocess
import venv
from collections.abc import Iterator, Sequence
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest
from one_rank import SGD, make_spec
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

import accelsweep
from accelsweep.records.run_files import read_rank_result
from accelsweep.results import Outcome, RankResult
from accelsweep.worker.run_spec import RunSpec

pytestmark = pytest.mark.heavy

MISSING = ("pydantic", "pyarrow", "pandas", "hydra", "omegaconf", "psutil", "sklearn", "snakemake")
MLP = {"_target_": "accelsweep.workloads.image_models.MLP", "features": 8, "width": 16, "classes": 4}
VECTORS = {"_target_": "accelsweep.workloads.datasets.RandomVectors", "features": 8, "classes": 4, "samples": 256}
MEASURE = {
    "warmup_steps": 2,
    "min_steps": 10,
    "min_seconds": 0.01,
    "max_steps": 20,
    "probe_steps": 4,
    "quality_samples": 64,
    "quality_metric": "val_accuracy",
}


def needed(names: list[str]) -> Iterator[metadata.Distribution]:
    """Yield these distributions and all that they require, each once."""
    waiting, seen = list(names), set[str]()
    while waiting:
        name = canonicalize_name(waiting.pop())
        if name in seen:
            continue
        seen.add(name)
        distribution = metadata.distribution(name)
        yield distribution
        requirements = map(Requirement, distribution.requires or ())
        waiting += [one.name for one in requirements if one.marker is None or one.marker.evaluate({"extra": ""})]


def environment_with(names: list[str], home: Path) -> Path:
    """Make an environment that links to these distributions of ours, and return its interpreter."""
    venv.create(home, symlinks=True)
    (site,) = home.glob("lib/python*/site-packages")
    for distribution in needed(names):
        tops = {file.parts[0] for file in distribution.files or ()} - {"..", "__pycache__", "bin"}
        for top in tops:
            if not (site / top).exists():
                (site / top).symlink_to(Path(str(distribution.locate_file(top))))
    return home / "bin" / "python"


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return environment_with(["torch", "numpy", "lightning"], tmp_path_factory.mktemp("theirs"))


def run_there(python: Path, spec: RunSpec, home: Path, missing: Sequence[str]) -> tuple[RankResult, str]:
    """Run one rank in that environment; return its result and what it wrote to stderr."""
    spec.write()
    there = {"RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": "1", "PYTHONPATH": str(Path(accelsweep.__file__).parents[1])}
    kept = {name: os.environ[name] for name in ("HOME", "PATH", "TMPDIR") if name in os.environ}
    tried = "import importlib.util, sys; sys.exit(any(map(importlib.util.find_spec, sys.argv[1:])))"
    subprocess.run([python, "-c", tried, *missing], env=kept, check=True)
    command = [python, "-m", "accelsweep.worker.main", spec.file()]
    done = subprocess.run(command, cwd=home, env=kept | there, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return read_rank_result(spec.rank_result(0)), done.stderr


@pytest.mark.parametrize("loop", ["lightning", "raw"])
def test_a_run_needs_nothing_but_torch_and_lightning(python: Path, tmp_path: Path, loop: str) -> None:
    spec = make_spec(tmp_path, loop=loop, model=MLP, data=VECTORS, optimizer=SGD, measure=MEASURE)
    result, errors = run_there(python, spec, tmp_path, MISSING)
    assert (result.outcome, result.reason) == (Outcome.measured, None), errors
    assert result.effective is not None
    assert result.effective.loop == loop
    assert (result.metrics["samples_per_second"].value or 0) > 0
    assert result.metrics["quality"].value is not None
    assert result.metrics["host_pss_bytes"].value is not None
    assert result.breakdown is not None
    steps = json.loads(spec.rank_steps(0).read_text())
    assert len(steps["step_seconds"]) == len(steps["train_loss"]) >= 12


SCRIPT = """
import torch
model = torch.nn.Linear(8, 2)
optimizer = torch.optim.SGD(model.parameters(), 0.1)
while True:
    optimizer.zero_grad()
    model(torch.randn(16, 8)).square().mean().backward()
    optimizer.step()
"""


def test_a_script_without_a_trainer_needs_no_lightning(tmp_path: Path) -> None:
    python = environment_with(["torch", "numpy"], tmp_path / "environment")
    attempt = tmp_path / "attempt"
    attempt.mkdir()
    (tmp_path / "train.py").write_text(SCRIPT)
    entry = {"kind": "script", "command": ["train.py"], "package": None}
    empty: dict[str, Any] = {"model": {}, "data": {}, "optimizer": None, "trainer": {}}
    measure = {**MEASURE, "quality_samples": None, "quality_metric": None}
    spec = make_spec(attempt, loop="script", entry=entry, batch_size=16, measure=measure, **empty)
    result, errors = run_there(python, spec, tmp_path, (*MISSING, "lightning"))
    assert (result.outcome, result.reason) == (Outcome.measured, None), errors
