"""A run in an environment with torch, numpy and Lightning only, without accelsweep's other dependencies."""

from __future__ import annotations

import json
import os
import subprocess
import venv
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path

import pytest
from one_rank import SGD, make_spec
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

import accelsweep
from accelsweep.records.run_files import read_rank_result
from accelsweep.results import Outcome

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


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The interpreter of an environment that holds links to those distributions of ours."""
    home = tmp_path_factory.mktemp("theirs")
    venv.create(home, symlinks=True)
    (site,) = home.glob("lib/python*/site-packages")
    for distribution in needed(["torch", "numpy", "lightning"]):
        tops = {file.parts[0] for file in distribution.files or ()} - {"..", "__pycache__", "bin"}
        for top in tops:
            if not (site / top).exists():
                (site / top).symlink_to(Path(str(distribution.locate_file(top))))
    return home / "bin" / "python"


@pytest.mark.parametrize("loop", ["lightning", "raw"])
def test_a_run_needs_nothing_but_torch_and_lightning(python: Path, tmp_path: Path, loop: str) -> None:
    spec = make_spec(tmp_path, loop=loop, model=MLP, data=VECTORS, optimizer=SGD, measure=MEASURE)
    spec.write()
    there = {"RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": "1", "PYTHONPATH": str(Path(accelsweep.__file__).parents[1])}
    kept = {name: os.environ[name] for name in ("HOME", "PATH", "TMPDIR") if name in os.environ}
    tried = "import importlib.util, sys; sys.exit(any(map(importlib.util.find_spec, sys.argv[1:])))"
    subprocess.run([python, "-c", tried, *MISSING], env=kept, check=True)
    command = [python, "-m", "accelsweep.worker.main", spec.file()]
    done = subprocess.run(command, cwd=tmp_path, env=kept | there, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    result = read_rank_result(spec.rank_result(0))
    assert (result.outcome, result.reason) == (Outcome.measured, None), done.stderr
    assert result.effective is not None
    assert result.effective.loop == loop
    assert (result.metrics["samples_per_second"].value or 0) > 0
    assert result.metrics["quality"].value is not None
    assert result.metrics["host_pss_bytes"].value is not None
    assert result.breakdown is not None
    steps = json.loads(spec.rank_steps(0).read_text())
    assert len(steps["step_seconds"]) == len(steps["train_loss"]) >= 12
