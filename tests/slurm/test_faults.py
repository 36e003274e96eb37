"""What goes wrong on a cluster: the sweep goes on by itself or by the same command, and nothing runs beside itself."""

import signal
import subprocess

import pytest

from accelsweep.core.outcome import Outcome

pytestmark = [pytest.mark.slurm, pytest.mark.long]

SLOW = ("measure.min_seconds=6",)

HOG = """
import torch
from accelsweep.workloads.models import SmallCNN

class Hog(SmallCNN):
    def __init__(self, **arguments):
        super().__init__(**arguments)
        self.ballast = [torch.ones(100_000_000) for _ in range(10)]  # 4 GB
"""


def outcomes(home):
    return {record.outcome for record in home.records().values()}


def test_a_cancelled_job_is_submitted_again_and_keeps_what_it_had_measured(home):
    head = home.start(*SLOW)
    first = home.in_a_run()
    home.wait_for(lambda: home.running() and home.running().run != first.run, "the second run")
    home.slurm("scancel", first.job)
    output = home.finished(head)
    assert "[2/2]" in output
    assert outcomes(home) == {Outcome.measured}
    attempts = [record.attempt for record in home.records().values()]
    assert sorted(attempts) == [1, 2]
    assert len(home.submitted()) == 2


def test_a_new_head_waits_for_the_jobs_of_a_killed_one(home):
    head = home.start(*SLOW)
    claim = home.in_a_run()
    head.send_signal(signal.SIGKILL)
    head.wait()
    output = home.run(*SLOW)
    assert f"left by an earlier head: job {claim.job} RUNNING" in output
    assert outcomes(home) == {Outcome.measured}
    assert {record.attempt for record in home.records().values()} == {1}


def test_a_new_head_cancels_the_jobs_of_a_killed_one_if_told_to(home):
    head = home.start(*SLOW)
    claim = home.in_a_run()
    head.send_signal(signal.SIGKILL)
    head.wait()
    output = home.run(*SLOW, "--cancel-old")
    assert "cancelling it" in output
    assert outcomes(home) == {Outcome.measured}
    assert home.state(claim.job) == "CANCELLED"
    assert 2 in {record.attempt for record in home.records().values()}


def test_a_controller_that_is_away_for_a_while_costs_nothing(home):
    head = home.start(*SLOW)
    claim = home.in_a_run()
    subprocess.run([home.cluster, "controller-away", "5"], check=True, capture_output=True)
    home.finished(head)
    assert outcomes(home) == {Outcome.measured}
    assert home.submitted() == [claim.job]


def test_a_job_that_slurm_queues_again_goes_on_under_the_same_number(home):
    head = home.start(*SLOW)
    first = home.in_a_run()
    home.slurm("scontrol", "requeue", first.job)
    home.at_once(first.job)
    home.wait_for(lambda: home.running() and home.running().restarts == 1, "the job's second start", 90)
    home.finished(head)
    assert outcomes(home) == {Outcome.measured}
    assert home.submitted() == [first.job]


def test_a_job_that_is_preempted_for_good_is_queued_again(home):
    head = home.start(*SLOW, "site.slurm.partition=scrap")
    claim = home.in_a_run()
    home.slurm("sbatch", "--partition=urgent", "--exclusive", f"--chdir={home.path}", "--wrap=sleep 2")
    home.wait_for(lambda: home.state(claim.job) in ("PREEMPTED", "PENDING"), "the preemption", 30)
    home.at_once(claim.job)
    output = home.finished(head)
    assert f"job {claim.job} was preempted" in output
    assert outcomes(home) == {Outcome.measured}


def test_a_run_that_takes_more_memory_than_its_job_is_an_outcome_in_the_end(home):
    (home.path / "hog.py").write_text(HOG)
    arguments = ("batch_size=16", "model._target_=hog.Hog", "site.slurm.mem_mb=2000", *SLOW)
    home.finished(home.start(*arguments), 1)
    home.finished(home.start(*arguments), 1)
    (record,) = home.records().values()
    assert record.outcome in (Outcome.crashed, Outcome.out_of_memory)
    assert record.reason
