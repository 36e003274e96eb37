"""Projects are measured in environments of their own, from the oldest Lightning and torch that runs need to today's."""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path
from typing import NamedTuple

import pytest
from environments import environment, installed_environment, oldest_python
from home import Home
from projects import copy_project

from accelsweep.planning.interpreter import query_interpreter

pytestmark = pytest.mark.real

SHORT = (
    "repeats=1",
    "measure.warmup_steps=3",
    "measure.min_steps=20",
    "measure.min_seconds=0.2",
    "measure.quality_samples=640",
    "measure.probe_steps=4",
)

TORCH, LIGHTNING = (f"{name}=={metadata.version(name).partition('+')[0]}" for name in ("torch", "lightning"))
"""The current versions, of any build."""


class Case(NamedTuple):
    project: str
    overrides: tuple[str, ...]
    measured: set[tuple[str, int]]
    software: dict[str, str]
    requirements: tuple[str, ...]
    python: str = sys.executable
    entry: str = "python train.py"


PRECISIONS = ("precision=32-true,bf16-mixed", {("32-true", 1), ("bf16-mixed", 1)})

CASES = {
    "lightning 2.0": Case(
        "script",
        ("batch_size=64", "quality=val_acc", PRECISIONS[0]),
        PRECISIONS[1],
        {"lightning": "2.0.9.post0", "torch": "2.1.2"},
        ("lightning==2.0.9.post0", "torch==2.1.2", "numpy<2", "setuptools<81"),
        oldest_python(),
    ),
    "lightning 2.3": Case(
        "hydra_template",
        ("batch_size=64", "devices=1,2"),
        {("32-true", 1), ("32-true", 2)},
        {"lightning": "2.3.3", "torch": "2.3.1"},
        ("lightning==2.3.3", "torch==2.3.1", "numpy<2", "setuptools<81", "hydra-core"),
        entry="python src/train.py",
    ),
    "lightning 2.6": Case(
        "lightning_cli",
        ("batch_size=64", "quality=val_acc", PRECISIONS[0]),
        PRECISIONS[1],
        {"lightning": "2.6."},
        (LIGHTNING, TORCH, "jsonargparse[signatures]"),
        entry="python train.py fit --config config.yaml",
    ),
    "pytorch_lightning": Case(
        "script",
        ("batch_size=64", "quality=val_acc", PRECISIONS[0]),
        PRECISIONS[1],
        {"pytorch-lightning": "2.5.5"},
        ("pytorch_lightning==2.5.5", TORCH),
    ),
}


@pytest.fixture(params=[*CASES.values()], ids=[*CASES])
def case(request: pytest.FixtureRequest) -> Case:
    found: Case = request.param
    return found


@pytest.fixture
def python(case: Case, tmp_path: Path) -> Iterator[str]:
    folder = tmp_path / "environment"
    yield installed_environment(folder, *case.requirements, python=case.python)
    shutil.rmtree(folder)  # gigabytes, which pytest would keep


@pytest.mark.long  # each case installs gigabytes into an environment of its own
def test_a_project_is_measured_in_its_own_environment(case: Case, python: str, tmp_path: Path, leases: str) -> None:
    version, packages = query_interpreter(Path(python), "the environment")
    assert "accelsweep" not in packages
    home = Home(copy_project(case.project, tmp_path / "home"), ACCELSWEEP_LEASES=leases)
    if "lightning" not in packages:
        for script in home.path.glob("*.py"):
            script.write_text(script.read_text().replace("lightning.pytorch", "pytorch_lightning"))
    (home.path / "accelsweep.yaml").write_text(f"python: {python}\nentry: {case.entry}\n")

    doctor = home.accelsweep("doctor")
    assert f"its interpreter: {python}" in doctor.stdout
    assert f"its versions: Python {version.split()[0]}, torch {packages['torch']}" in doctor.stdout

    done = home.accelsweep("run", *case.overrides, *SHORT)
    assert done.returncode == 0, done.stdout
    files = home.path.glob("sweeps/train/runs/*/record.json")
    records = [json.loads(file.read_text())["body"] for file in files]
    effective = [record["effective"] for record in records]
    assert {(each["precision"], each["world_size"]) for each in effective} == case.measured
    assert {each["global_batch_size"] for each in effective} == {64}
    assert {each["launcher"] for each in effective} == {"fork"}
    for record in records:
        assert record["outcome"] == "measured"
        for metric in ("samples_per_second", "quality", "host_pss_bytes", "step_seconds", "forward_share"):
            assert record["metrics"][metric]["value"] > 0, metric
        software = record["fingerprint"]["software"]
        assert software["python"] == version.split()[0]
        assert all(software[name].startswith(expected) for name, expected in case.software.items()), software
    manifest = json.loads((home.path / "sweeps/train/manifest.json").read_text())["body"]
    assert manifest["entry"]["python"] == python
    home.end_processes()


@pytest.mark.parametrize("command", ["run", "plan", "doctor"])
def test_an_environment_whose_torch_cannot_be_imported_ends_the_command(tmp_path: Path, command: str) -> None:
    home = Home(copy_project("script", tmp_path / "home"))
    broken = ("2.4.0", "import ctypes; ctypes.CDLL('libcudart.so.0')")
    python = environment(tmp_path / "environment", None, shares=False, torch=broken, lightning=("2.2.0", ""))
    overrides = () if command == "doctor" else ("batch_size=32,64",)
    ended = home.accelsweep(command, "--entry", f"{python} train.py", *overrides)
    assert ended.returncode == 2, ended.stdout
    assert f"the project's interpreter {python} cannot import torch (OSError: libcudart.so.0: " in ended.stdout
    assert "Traceback" not in ended.stdout
    assert [path.name for path in home.path.iterdir()] == ["train.py"]


def test_a_module_that_is_missing_in_the_trial_is_to_be_installed_where_the_script_ran(tmp_path: Path) -> None:
    """The script's error and its line end the command, and nothing is left."""
    home = Home(copy_project("script", tmp_path / "home"))
    script = home.path / "train.py"
    script.write_text(script.read_text().replace("seed_everything(7)", "import absent"))
    python = environment(tmp_path / "environment", "extra")
    ended = home.accelsweep("run", "--entry", f"{python} train.py", "batch_size=32,64", "quality=val_acc")
    assert ended.returncode == 2, ended.stdout
    error = "ModuleNotFoundError: No module named 'absent', in main (train.py, line"
    assert f"train.py failed in its trial: {error}" in ended.stdout
    assert f"install it in {python}, or name another interpreter under `python` in accelsweep.yaml" in ended.stdout
    assert not (home.path / "sweeps").exists()
