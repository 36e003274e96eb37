"""The shell completes sweeps, experiments and outcomes quickly, and errors never break the user's line."""

from __future__ import annotations

import os
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

from accelsweep.cli.completion import overrides
from accelsweep.records.plan import Manifest

pytestmark = pytest.mark.heavy

HEAVY = ("torch", "lightning", "mlflow", "pandas", "hydra", "snakemake", "scipy")

IN_BASH = """
eval "$SCRIPT"
COMP_LINE=$1 COMP_WORDS=("${@:2}") COMP_CWORD=$(($# - 2))
_accelsweep_completion accelsweep
printf '%s\\n' "${COMPREPLY[@]}"
"""


@pytest.fixture
def home(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


@cache
def script():
    """Return what a user's bash evaluates, once. It is asked for in bash: the answer is for the shell around it."""
    command = ["bash", "-c", '"$0" --show-completion bash || exit', Path(sys.executable).parent / "accelsweep"]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def in_bash(*words, home):
    """Return what bash offers for the last of these words, as its own script asks for it."""
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    environment = {**os.environ, "PATH": path, "SCRIPT": script()}
    command = ["bash", "-c", IN_BASH, "bash", " ".join(words), *words]
    done = subprocess.run(command, cwd=home, env=environment, capture_output=True, text=True, check=False)
    assert done.stderr == ""
    return done.stdout.split()


def test_bash_completes_an_experiment_before_and_after_the_equals_sign(home):
    assert "experiment=quickstart" in in_bash("accelsweep", "run", "experi", home=home)
    assert in_bash("accelsweep", "run", "experiment", "=", "quick", home=home) == ["quickstart"]
    assert "claims/matmul" in in_bash("accelsweep", "plan", "experiment", "=", home=home)


def test_bash_completes_sweeps_of_the_folder_and_outcomes(example_sweep):
    assert in_bash("accelsweep", "status", "ex", home=example_sweep.home) == ["example"]
    assert in_bash("accelsweep", "compare", "example", "", home=example_sweep.home) == ["example"]
    assert in_bash("accelsweep", "runs", "example", "--outcome", "cra", home=example_sweep.home) == ["crashed"]
    assert in_bash("accelsweep", "retry", "example", "--outcome", "di", home=example_sweep.home) == [
        "diverged",
        "disturbed",
    ]


def test_bash_completes_the_settings_of_the_sweep_that_was_named(example_sweep):
    settings = [
        setting.name for setting in Manifest.read(example_sweep.manifest).settings if setting.unsupported is None
    ]
    assert in_bash("accelsweep", "debug", "example", "", home=example_sweep.home) == settings


@pytest.mark.parametrize("words", [("run", "-m", "experiment", "=", "nothing"), ("debug", "no/such/sweep", "")])
def test_completion_is_silent_if_nothing_matches_or_something_is_wrong(words, home):
    assert in_bash("accelsweep", *words, home=home) == []


def test_a_damaged_plan_completes_nothing(example_sweep):
    example_sweep.manifest.write_text("{")
    assert in_bash("accelsweep", "debug", "example", "", home=example_sweep.home) == []


@pytest.mark.parametrize("kind", ["overrides", "sweeps"])
def test_completing_imports_nothing_heavy(kind, home):
    ask = {"overrides": "((), 'experiment=')", "sweeps": "('')"}[kind]
    code = (
        "import sys\nfrom accelsweep.cli import completion\n"
        f"completion.{kind}{ask}\nprint([name for name in {HEAVY!r} if name in sys.modules])"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout.strip() == "[]"


def test_the_users_own_experiments_and_groups_are_completed(home):
    own = home / "conf" / "experiment" / "mine.yaml"
    own.parent.mkdir(parents=True)
    own.touch()
    assert overrides((), "experiment=m") == ["experiment=mine"]
    assert overrides((), "experiment=quick") == ["experiment=quickstart"]


def test_after_a_comma_the_next_value_is_completed(home):
    assert overrides((), "experiment=ladder,quick") == ["experiment=ladder,quickstart"]
    assert overrides(("experiment", "="), "ladder,quick") == ["ladder,quickstart"]


def test_an_unknown_group_completes_nothing(home):
    assert overrides((), "batch_size=3") == []
    assert overrides(("batch_size", "="), "3") == []


def test_experiments_are_offered_first(home):
    offered = overrides((), "")
    assert "experiment=quickstart" in offered
    assert {override.partition("=")[0] for override in offered} == {"experiment"}
    assert overrides(("experiment", "=", "quickstart"), "model=resn")[0].startswith("model=resn")
