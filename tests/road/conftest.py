"""A working directory as a user has it, with a small experiment, and accelsweep started as a user starts it."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parents[2]

TINY = """\
# @package _global_
hydra:
  sweeper:
    params:
      batch_size: 16,32
accelerator: cpu
baseline: {batch_size: 16}
repeats: 3
measure:
  warmup_steps: 3
  min_steps: 10
  max_steps: 40
  min_seconds: 0.05
  quality_samples: null
"""


class Home:
    """A user's working directory."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.environment = os.environ | {"PYTHONUNBUFFERED": "1", "COLUMNS": "200"}

    def experiment(self, name: str, text: str) -> None:
        file = self.path / "conf" / "experiment" / f"{name}.yaml"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)

    def module(self, name: str, text: str) -> None:
        (self.path / f"{name}.py").write_text(text)

    def start(self, *arguments: str) -> "subprocess.Popen[str]":
        return subprocess.Popen(
            [sys.executable, "-m", "accelsweep", *arguments],
            cwd=self.path,
            env=self.environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def accelsweep(self, *arguments: str) -> "subprocess.CompletedProcess[str]":
        process = self.start(*arguments)
        output, _ = process.communicate(timeout=280)
        return subprocess.CompletedProcess(process.args, process.returncode, output, None)

    def snakemake(self, *arguments: str) -> "subprocess.CompletedProcess[str]":
        command = [sys.executable, "-m", "snakemake", "--snakefile", str(REPOSITORY / "Snakefile")]
        command += ["--profile", str(REPOSITORY / "workflows" / "profiles" / "local"), *arguments]
        return subprocess.run(
            command,
            cwd=self.path,
            env=self.environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
            timeout=280,
        )

    def files(self) -> dict[str, int]:
        """Every file below the home with its time of change, caches apart."""
        ignored = {".snakemake", "__pycache__"}
        return {
            str(path.relative_to(self.path)): path.stat().st_mtime_ns
            for path in sorted(self.path.rglob("*"))
            if path.is_file() and not ignored & set(path.relative_to(self.path).parts)
        }

    def records(self, sweep: str) -> dict[str, int]:
        return {
            name: stamp
            for name, stamp in self.files().items()
            if name.startswith(f"sweeps/{sweep}/runs/") and name.endswith("/record.json") and "/attempts/" not in name
        }


@pytest.fixture
def home(tmp_path: Path) -> Home:
    made = Home(tmp_path)
    made.experiment("tiny", TINY)
    return made


@pytest.fixture(scope="session")
def finished(tmp_path_factory: pytest.TempPathFactory) -> tuple[Home, "subprocess.CompletedProcess[str]"]:
    """One finished run of the tiny experiment; tests look at it and must not change it."""
    made = Home(tmp_path_factory.mktemp("finished"))
    made.experiment("tiny", TINY)
    return made, made.accelsweep("run", "experiment=tiny")


@pytest.fixture
def continued(finished: tuple[Home, object], tmp_path: Path) -> Home:
    """A copy of the finished home that a test may go on with."""
    source, _ = finished
    shutil.copytree(source.path, tmp_path, dirs_exist_ok=True, copy_function=shutil.copy2)
    return Home(tmp_path)
