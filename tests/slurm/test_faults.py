"""What goes wrong on a cluster: the sweep goes on by itself or by the same command, and nothing runs beside itself."""

import os
from pathlib import Path

import pytest

from accelsweep.records.plan import Manifest
from accelsweep.results import Outcome

# tests/faults strikes drivers and executors of this machine; only Slurm queues again, preempts and loses nodes
pytestmark = [pytest.mark.slurm, pytest.mark.long]

SLOW = ("measure.min_seconds=6",)
QUICK = ("measure.min_seconds=0.05",)

HOG = """
import os
import signal

import torch
from accelsweep.workloads.image_models import SmallCNN

class Killer(SmallCNN):
    def training_step(self, batch, number):
        os.kill(os.getppid(), signal.SIGKILL)

class Hog(SmallCNN):
    def __init__(self, **arguments):
        super().__init__(**arguments)
        self.ballast = [torch.ones(100_000_000) for _ in range(10)]  # 4 GB
"""


def outcomes(home):
    return {record.outcome for record in home.records().values()}


def test_a_job_that_slurm_queues_again_goes_on_under_the_same_number(home):
    driver = home.start(*SLOW)
    first = home.in_a_run()
    home.slurm("scontrol", "requeue", first.job)
    home.at_once(first.job)
    home.wait_for(lambda: home.running() and home.running().restarts == 1, "the job's second start", 90)
    home.finished(driver)
    assert outcomes(home) == {Outcome.measured}
    assert home.submitted() == [first.job]


def test_a_preempted_job_that_slurm_queues_again_goes_on(home):
    driver = home.start(*SLOW, "site.slurm.partition=spare")
    owner = home.in_a_run()
    home.slurm("sbatch", "--partition=urgent", "--exclusive", f"--chdir={home.path}", "--wrap=sleep 2")
    home.at_once(owner.job)
    home.finished(driver)
    assert outcomes(home) == {Outcome.measured}
    assert "Restarts=1" in home.told(owner.job)


def test_a_job_that_is_preempted_for_good_is_queued_again(home):
    driver = home.start(*SLOW, "site.slurm.partition=scrap")
    owner = home.in_a_run()
    home.slurm("sbatch", "--partition=urgent", "--exclusive", f"--chdir={home.path}", "--wrap=sleep 2")
    home.wait_for(lambda: home.state(owner.job) in ("PREEMPTED", "PENDING"), "the preemption", 30)
    home.at_once(owner.job)
    output = home.finished(driver)
    assert f"job {owner.job} was preempted" in output
    assert outcomes(home) == {Outcome.measured}


def test_a_run_that_takes_more_memory_than_its_job_is_out_of_memory_by_slurms_own_words(home):
    (home.path / "hog.py").write_text(HOG)
    home.run("batch_size=16", "model._target_=hog.Hog", "site.slurm.mem_mb=2000", *SLOW)
    (record,) = home.records().values()
    assert record.outcome is Outcome.out_of_memory
    assert "Slurm ended its job because it ran out of memory" in record.reason
    assert "exceeded memory limit" in record.reason
    assert len(home.submitted()) == 2  # the second says what became of the first


def test_a_run_that_takes_its_whole_job_down_keeps_no_other_run_of_its_block_from_being_measured(home):
    """Once by the memory limit of the job, which Slurm enforces, and once by a kill that nobody explains.

    Both may come first in the random order, which ends a sweep without `--keep-going`.
    """
    (home.path / "hog.py").write_text(HOG)
    plain = "accelsweep.workloads.image_models.SmallCNN"
    models = f"model._target_={plain},hog.Hog,hog.Killer"
    baseline = ("~baseline.batch_size", f"+baseline.model._target_={plain}", "batch_size=16")
    output = home.finished(
        home.start(models, *baseline, "repeats=2", "site.slurm.mem_mb=2000", *QUICK, "--keep-going"), code=1
    )
    ended = {}
    for record in home.records().values():
        ended.setdefault(record.config.raw["model"]["_target_"], []).append(record)
    assert {record.outcome for record in ended[plain]} == {Outcome.measured}, output
    assert {record.outcome for record in ended["hog.Hog"]} == {Outcome.out_of_memory}
    assert {record.outcome for record in ended["hog.Killer"]} == {Outcome.crashed}
    assert all("its executor died 2 times" in record.reason for record in ended["hog.Killer"])
    assert {record.attempt for record in ended[plain]} == {1}
    assert output.splitlines()[-1].startswith("crashed: 2 runs: its executor died 2 times"), output


def test_a_job_whose_node_goes_down_goes_on_elsewhere(home):
    driver = home.start(*SLOW)
    job = home.in_a_run().job
    node = home.slurm("squeue", "--noheader", "--format=%N", "--jobs", job).strip()
    home.slurm("scontrol", "update", f"nodename={node}", "state=down", "reason=test")
    try:
        home.at_once(job)
        home.finished(driver)
    finally:
        home.slurm("scontrol", "update", f"nodename={node}", "state=resume")
    assert outcomes(home) == {Outcome.measured}
    assert home.submitted() == [job]


def test_a_job_that_a_sick_node_could_not_start_is_released(home):
    home.has("sick", "gpu1")
    try:
        driver = home.start(*SLOW)
        home.wait_for(lambda: home.submitted() and "Restarts=1" in home.told(home.submitted()[0]), "the failed launch")
        (job,) = home.submitted()
        home.wait_for(lambda: "Reason=BeginTime" in home.told(job), "the release")
        home.at_once(job)
        output = home.finished(driver)
    finally:
        home.has("well", "gpu1")
    assert f"job {job} could not be started (launch failed requeued held); released" in output
    assert "NodeList=gpu2" in home.told(job)
    assert outcomes(home) == {Outcome.measured}


def test_a_job_of_a_killed_head_that_can_never_start_is_cancelled_and_submitted_anew(home):
    home.slurm("scontrol", "update", "partitionname=gpu", "maxtime=1")
    try:
        driver = home.start(*SLOW)
        home.wait_for(lambda: home.submitted() and "Reason=PartitionTimeLimit" in home.told(home.submitted()[0]), "it")
        (job,) = home.submitted()
        driver.kill()
        driver.wait()
        driver = home.start(*SLOW)
        home.wait_for(lambda: home.state(job) == "CANCELLED", "the end of the first job")
    finally:
        home.slurm("scontrol", "update", "partitionname=gpu", "maxtime=infinite")
    output = home.finished(driver)
    assert f"job {job} of an earlier driver: waiting does not resolve PartitionTimeLimit; cancelled" in output
    assert outcomes(home) == {Outcome.measured}
    assert len(home.submitted()) == 2


def test_a_job_that_waits_long_is_told_with_slurms_reason(home):
    occupied = ("--partition=gpu", "--nodes=2", "--exclusive", "--output=/dev/null", "--wrap=sleep 45")
    wait = home.slurm("sbatch", "--parsable", *occupied).strip()
    driver = home.start(*SLOW)
    home.wait_for(lambda: [job for job in home.submitted() if job != wait], "the job")
    (job,) = (job for job in home.submitted() if job != wait)
    home.wait_for(lambda: "Reason=Resources" in home.told(job), "its turn")
    assert f"job {job} PENDING (Resources), block b" in home.say("status", "tiny")
    home.in_a_run()
    shown = home.say("status", "tiny")
    assert f"job {job} RUNNING on gpu" in shown
    output = home.finished(driver)
    assert "jobs are waiting in Slurm's queue: 1 x Resources" in output
    assert outcomes(home) == {Outcome.measured}
    assert "no job of this sweep is queued or running" in home.say("status", "tiny")


@pytest.mark.usefixtures("accounting")
def test_what_a_limit_of_jobs_per_user_refuses_is_submitted_as_jobs_end_and_max_jobs_is_named(home):
    """Four jobs where an account may have one in the queue; then one more, while another job of the user's is there."""
    each_alone = ("block.size=1", "repeats=2", "batch_size=16,32", "site.slurm.account=few", *QUICK)
    output = home.run(*each_alone)
    assert outcomes(home) == {Outcome.measured}
    assert len(home.records()) == 4
    assert "accepted 1 job of the sweep and refuses more (AssocMaxSubmitJobLimit)" in output
    assert "site.slurm.max_jobs=1" in output
    assert len(home.submitted()) == len(Manifest.read(home.folder.manifest).blocks)
    other = ("--parsable", "--partition=cpu", "--account=few", "--output=/dev/null", "--wrap=sleep 40")
    home.slurm("sbatch", *other)
    output = home.run(*each_alone, "--add-repeats", "1")
    assert "Slurm accepts no jobs at present (AssocMaxSubmitJobLimit" in output
    assert len(home.records()) == 6


def test_a_site_without_sacct_is_no_worse(home, tmp_path_factory):
    links = tmp_path_factory.mktemp("bin")
    for folder in reversed(os.environ["PATH"].split(os.pathsep)):
        for program in Path(folder).glob("*"):
            (links / program.name).unlink(missing_ok=True)
            (links / program.name).symlink_to(program)
    (links / "sacct").unlink()
    home.environment["PATH"] = str(links)
    driver = home.start(*SLOW)
    home.slurm("scancel", home.in_a_run().job)
    home.finished(driver)
    assert outcomes(home) == {Outcome.measured}
