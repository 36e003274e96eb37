"""What a command does before its plan is known."""

from __future__ import annotations

from pathlib import Path

import pytest

from accelsweep.driver.request import Request
from accelsweep.driver.run_sweep import expects_local_runs
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
    assert expects_local_runs(tmp_path, Request(("experiment=quickstart",)))
    assert not expects_local_runs(tmp_path, Request(("experiment=quickstart",), profile="slurm"))


def test_no_runs_are_expected_of_a_sweep_that_may_be_complete(home: Path) -> None:
    assert not expects_local_runs(home, Request(name="complete"))
    assert not expects_local_runs(home, Request(("experiment=quickstart",))), "its name is not known yet"
    assert expects_local_runs(home, Request(name="another"))
