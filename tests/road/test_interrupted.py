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


MINE = """\
import time
from accelsweep.workloads.models import SmallCNN


class Slow(SmallCNN):
    def training_step(self, batch, batch_index):
        time.sleep(0.05)
        return super().training_step(batch, batch_index)
"""


def test_ctrl_c_keeps_finished_runs_and_the_same_command_resumes(home):
    """Runs last by sleeping, not by computing: there must be time for a signal after the first of them."""
    home.module("mine", MINE)
    arguments = ("run", "experiment=tiny", "batch_size=16,32,64", "repeats=1", "model._target_=mine.Slow")
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


@pytest.mark.long  # supervise/test_supervisor.py ends blocks at a deadline; only here a command has a budget
def test_a_spent_time_budget_starts_no_further_run_and_still_reports(continued):
    """A second is over before the first new block begins. tests/supervise ends blocks in their midst."""
    before = continued.records("tiny")
    report = continued.path / "reports/tiny/index.html"
    report.unlink()
    result = continued.accelsweep("run", "experiment=tiny", "--add-repeats", "1", "--time-budget", "1s")
    assert result.returncode == 1, result.stdout
    assert "time budget is spent" in result.stdout
    assert continued.records("tiny") == before
    assert report.exists()
