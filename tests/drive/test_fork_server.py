"""A local sweep of forked runs has one fork server; other sweeps, and those beside a server already, have none."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from accelsweep.driver.background_processes import fork_server
from accelsweep.executor.ipc import FORK_SERVER_VARIABLE
from accelsweep.planning.plan import make_plan

TINY = ("experiment=quickstart", "batch_size=32", "devices=1", "repeats=1")


@pytest.mark.parametrize("given", ["launcher=spawn", "site=slurm_example"])
def test_there_is_none_for_runs_that_are_not_forked_on_this_machine(tmp_path: Path, given: str) -> None:
    with fork_server(tmp_path, tmp_path / "sweeps" / "log", [make_plan(tmp_path, [*TINY, given])]):
        assert FORK_SERVER_VARIABLE not in os.environ
    assert not (tmp_path / "sweeps").exists()


def test_one_that_an_outer_process_runs_is_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(FORK_SERVER_VARIABLE, "outer")
    with fork_server(tmp_path, tmp_path / "sweeps" / "log", [make_plan(tmp_path, TINY)]):
        assert os.environ[FORK_SERVER_VARIABLE] == "outer"
    assert os.environ[FORK_SERVER_VARIABLE] == "outer"
    assert not (tmp_path / "sweeps").exists()


def test_one_that_a_command_runs_for_several_sweeps_is_theirs_even_where_the_first_is_not_forked(
    tmp_path: Path,
) -> None:
    spawned, forked = make_plan(tmp_path, [*TINY, "launcher=spawn"]), make_plan(tmp_path, TINY)
    with fork_server(tmp_path, tmp_path / "shared.log", [spawned, forked]):
        shared = os.environ[FORK_SERVER_VARIABLE]
        with fork_server(tmp_path, tmp_path / "own.log", [forked]):
            assert os.environ[FORK_SERVER_VARIABLE] == shared
        assert os.environ[FORK_SERVER_VARIABLE] == shared
    assert FORK_SERVER_VARIABLE not in os.environ
    assert (tmp_path / "shared.log").exists()
    assert not (tmp_path / "own.log").exists()
