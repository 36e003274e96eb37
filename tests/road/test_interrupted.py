"""Ctrl-C keeps every finished run, and the same command goes on from there."""

import signal
import time

import pytest
from patience import PATIENCE_SECONDS

pytestmark = pytest.mark.real


def wait_for(condition, seconds=PATIENCE_SECONDS):
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.05)


def test_ctrl_c_keeps_finished_runs_and_the_same_command_resumes(home):
    arguments = (
        "run",
        "experiment=tiny",
        "batch_size=16,32,64",
        "repeats=1",
        "measure.min_seconds=1",
        "measure.max_steps=100000",
    )
    process = home.start(*arguments)
    wait_for(lambda: len(home.records("tiny")) >= 1)
    process.send_signal(signal.SIGINT)
    output, _ = process.communicate(timeout=PATIENCE_SECONDS)
    assert process.returncode == 130, output
    assert "Resume with" in output
    kept = home.records("tiny")
    assert 1 <= len(kept) < 4
    again = home.accelsweep(*arguments)
    assert again.returncode == 0, again.stdout
    after = home.records("tiny")
    assert len(after) == 4, "three settings, the baseline twice"
    assert {name: after[name] for name in kept} == kept


def test_a_spent_time_budget_starts_no_further_run_and_still_reports(home):
    arguments = ("run", "experiment=tiny", "measure.min_seconds=3", "measure.max_steps=100000")
    result = home.accelsweep(*arguments, "--time-budget", "9s")
    assert result.returncode == 1, result.stdout
    assert "time budget is spent" in result.stdout
    assert len(home.records("tiny")) < 4
    assert (home.path / "reports/tiny/index.html").exists()
