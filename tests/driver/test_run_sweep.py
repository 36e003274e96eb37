"""What a command does before its plan is known."""

from __future__ import annotations

from pathlib import Path

import pytest
from environments import environment
from projects import copy_project

from accelsweep.driver.background_processes import Interpreter
from accelsweep.driver.request import Request
from accelsweep.driver.run_sweep import expected_interpreters
from accelsweep.records.layout import SweepFolder


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A working directory with a complete sweep."""
    complete = SweepFolder(tmp_path, "complete")
    complete.root.mkdir(parents=True)
    complete.manifest.touch()
    complete.completed_state.touch()
    return tmp_path


def test_runs_are_expected_on_this_machine_but_not_where_jobs_are_submitted(tmp_path: Path) -> None:
    assert expected_interpreters(tmp_path, Request(("experiment=quickstart",)))
    assert not expected_interpreters(tmp_path, Request(("experiment=quickstart",), profile="slurm"))


def test_no_runs_are_expected_of_a_sweep_that_may_be_complete(home: Path) -> None:
    assert not expected_interpreters(home, Request(name="complete"))
    assert not expected_interpreters(home, Request(("experiment=quickstart",))), "its name is not known yet"
    assert expected_interpreters(home, Request(name="another"))


def test_no_forks_are_expected_of_wrong_input_and_of_whole_processes(tmp_path: Path) -> None:
    copy_project("hydra_template", tmp_path)
    assert expected_interpreters(tmp_path, Request(("batch_size=32",))) == {Interpreter()}
    assert not expected_interpreters(tmp_path, Request(("batch_size=32", "measure.scope=process")))
    assert not expected_interpreters(tmp_path, Request(entry="python absent.py"))


def test_a_project_with_an_environment_of_its_own_is_forked_from_its_interpreter(tmp_path: Path) -> None:
    copy_project("hydra_template", tmp_path)
    python = environment(tmp_path / ".venv", None)
    assert expected_interpreters(tmp_path, Request(("batch_size=32",))) == {Interpreter(python, "lightning")}


@pytest.mark.parametrize(("project", "imports"), [("plain_script", False), ("fabric", True), ("script", True)])
def test_the_server_of_a_projects_environment_imports_lightning_if_its_script_does(
    tmp_path: Path, project: str, imports: bool
) -> None:
    copy_project(project, tmp_path)
    environment(tmp_path / ".venv", None)
    (expected,) = expected_interpreters(tmp_path, Request(("batch_size=32",)))
    assert expected.imports_lightning is imports
