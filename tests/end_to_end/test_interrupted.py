"""Ctrl-C keeps every finished run, and the same command goes on from there."""

import pytest

pytestmark = pytest.mark.real


def test_ctrl_c_keeps_finished_runs_and_the_same_command_resumes(interrupted, finished):
    """The finished sweep that most end-to-end tests look at was interrupted after its first run."""
    home, again = finished
    assert interrupted["code"] == 130, interrupted["output"]
    assert "Resume with" in interrupted["output"]
    kept = interrupted["kept"]
    assert 1 <= len(kept) < 4
    assert again.returncode == 0, again.stdout
    after = home.records("tiny")
    assert len(after) == 4
    assert {name: after[name] for name in kept} == kept


@pytest.mark.long  # executor/test_block.py ends blocks at a deadline; only here a command has a budget
def test_a_spent_time_budget_starts_no_further_run_and_still_reports(continued):
    """A second is over before the first new block begins. tests/executor ends blocks in their midst."""
    before = continued.records("tiny")
    report = continued.path / "reports/tiny/index.html"
    report.unlink()
    result = continued.accelsweep("run", "experiment=tiny", "--add-repeats", "1", "--time-budget", "1s")
    assert result.returncode == 1, result.stdout
    assert "time budget is spent" in result.stdout
    assert continued.records("tiny") == before
    assert report.exists()
