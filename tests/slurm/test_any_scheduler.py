"""What every scheduler's jobs go through: the same tests on a real Slurm and on a real Grid Engine."""

import json
import signal

import pytest

from accelsweep.results import Outcome

SLOW = ("measure.min_seconds=6",)

HOG = """
import torch
from accelsweep.workloads.image_models import SmallCNN

class Hog(SmallCNN):
    def __init__(self, **arguments):
        super().__init__(**arguments)
        self.ballast = [torch.{take}(100_000_000) for _ in range({pieces})]  # 0.4 GB each
"""


def outcomes(home):
    return {record.outcome for record in home.records().values()}


def test_one_command_measures_a_sweep_and_nothing_twice(any_home):
    home = any_home
    output = home.run()
    assert "[2/2]" in output
    records = home.records()
    assert {record.outcome for record in records.values()} == {Outcome.measured}
    assert (home.folder.report / "index.html").exists()
    assert (home.path / "mlflow.db").exists()
    jobs = home.submitted()
    assert len(jobs) == 1
    assert "2 runs, 2 settled already" in home.run()
    assert home.submitted() == jobs


@pytest.mark.long  # features/grid_engine/test_site_draft.py reads made-up clusters; here a real one answers
def test_a_site_is_tried_by_the_doctor_and_a_job_tells_of_its_node(any_home):
    """On Grid Engine the site is a draft; Slurm's drafts have tests of their own."""
    home, site = any_home, ["site=box"]
    if home.scheduler == "Grid Engine":
        assert "conf/site/drafted.yaml is a draft" in home.say("site", "drafted", "--from-grid-engine")
        site = ["site=drafted", "+site.grid_engine.fake_gpus=1"]  # its GPUs are numbers, which run no CUDA
    ended = home.accelsweep("doctor", "--json", *site, "--job", "3")
    found = {check["what"]: check for check in json.loads(ended.stdout)["checks"]}
    assert ended.returncode == 0, [check for check in found.values() if check["ok"] is not True]
    assert found[site[0].replace("=", " ")]["found"].startswith(f"submits to {home.version}")
    assert {check["ok"] for what, check in found.items() if what.startswith("job of ")} == {True}
    jobs = [check for what, check in found.items() if what.startswith("a short job of ")]
    assert all(check["found"].endswith(" ran") for check in jobs), jobs
    assert any(what.startswith("torch on ") and check["ok"] for what, check in found.items())
    assert not list(home.path.glob("*.log"))


@pytest.mark.long  # driver/test_failed_jobs.py reads such words; only here a scheduler says them
def test_what_an_engine_would_refuse_is_told_by_the_doctor_in_its_words_and_no_job_is_left(any_home):
    home = any_home
    override, _ = home.nowhere
    ended = home.accelsweep("doctor", "--json", "site=box", override, "--job", "1")
    assert ended.returncode == 1
    job = next(check for check in json.loads(ended.stdout)["checks"] if check["what"].startswith("job of "))
    assert not job["ok"]
    assert override.partition("=")[2] in job["remedy"]
    ended = home.accelsweep("doctor", "--json", "site=box", f"{home.unprepared}.scratch=/proc/none", "--job", "1")
    job = next(check for check in json.loads(ended.stdout)["checks"] if check["what"].startswith("a short job"))
    assert ended.returncode == 1
    assert "mkdir: cannot create directory" in job["found"]
    assert home.unprepared.lstrip("+") in job["remedy"]
    assert home.left() == []


@pytest.mark.long  # records/test_run_files.py continues after a killed executor; only here a scheduler kills it
def test_a_cancelled_job_is_submitted_again_and_keeps_what_it_had_measured(any_home):
    home = any_home
    driver = home.start(*SLOW)
    first = home.in_a_run()
    home.in_another_run(first)
    home.cancel(first.job)
    output = home.finished(driver)
    assert "[2/2]" in output
    assert outcomes(home) == {Outcome.measured}
    assert sorted(record.attempt for record in home.records().values()) == [1, 2]
    assert len(home.submitted()) == 2


@pytest.mark.long  # driver/test_failed_jobs.py reads such words; only here a scheduler says them
def test_a_job_that_the_engine_refuses_is_told_in_its_words_before_anything_is_submitted(any_home):
    home = any_home
    override, words = home.nowhere
    output = home.finished(home.start(override), code=2)
    assert f"{home.scheduler} refuses a job of " in output
    assert words in output.splitlines()[-1]
    assert not home.left()
    assert "[2/2]" in home.run()  # the right place, the same sweep


@pytest.mark.long  # driver/test_failed_jobs.py reads such words; only here a shell says them
@pytest.mark.parametrize(
    ("override", "words"),
    [
        (".modules=[cuda/12]", "module: command not found"),
        (".scratch=/proc/nowhere", "cannot create directory"),
        (".container=nocontainer", "nocontainer: command not found"),
    ],
)
def test_a_node_that_cannot_be_prepared_is_told_in_the_shells_words(any_home, override, words):
    output = any_home.finished(any_home.start(f"{any_home.unprepared}{override}"), code=1)
    last = output.splitlines()[-1]
    assert last.startswith("not_run: 2 runs: its job ")
    assert words in last


@pytest.mark.long  # driver/test_job_queue.py counts the minutes; only here a real queue lets a job wait
def test_a_job_that_waits_too_long_is_left_out_with_the_reason_and_the_same_command_measures_it(any_home):
    home = any_home
    home.hold_back()
    try:
        output = home.finished(home.start("limits.queue_minutes=0.3"), code=1)
    finally:
        home.let_go()
    assert f"jobs are waiting in {home.scheduler}'s queue: 1 x " in output
    assert (
        f"more than limits.queue_minutes (0.3) in {home.scheduler}'s queue, which reports: " in output.splitlines()[-1]
    )
    assert "[2/2]" in home.run("limits.queue_minutes=0.3")


@pytest.mark.long  # end_to_end/ kills drivers on one machine; only here they leave jobs behind
def test_a_new_head_waits_for_the_jobs_of_a_killed_one(any_home):
    home = any_home
    driver = home.start(*SLOW)
    owner = home.in_a_run()
    driver.send_signal(signal.SIGKILL)
    driver.wait()
    assert f"job {owner.job} " in home.say("status", "tiny")
    output = home.run(*SLOW)
    assert f"left by an earlier driver: job {owner.job} " in output
    assert outcomes(home) == {Outcome.measured}
    assert {record.attempt for record in home.records().values()} == {1}


@pytest.mark.long  # end_to_end/ kills drivers on one machine; only here they leave jobs to cancel
def test_a_new_head_cancels_the_jobs_of_a_killed_one_if_told_to(any_home):
    home = any_home
    driver = home.start(*SLOW)
    owner = home.in_a_run()
    driver.send_signal(signal.SIGKILL)
    driver.wait()
    output = home.run(*SLOW, "--cancel-old")
    assert "cancelling it" in output
    assert outcomes(home) == {Outcome.measured}
    assert owner.job not in home.left()
    assert 2 in {record.attempt for record in home.records().values()}


@pytest.mark.long  # end_to_end/ interrupts drivers on one machine; only here they have jobs to cancel
def test_an_interrupted_head_takes_its_jobs_with_it(any_home):
    home = any_home
    driver = home.start(*SLOW)
    home.in_a_run()
    driver.send_signal(signal.SIGINT)
    output = home.finished(driver, code=130)
    assert "every finished run is kept" in output
    home.wait_for(lambda: not home.left(), "the end of the jobs", 60)
    assert "[2/2]" in home.run(*SLOW)
    assert outcomes(home) == {Outcome.measured}


@pytest.mark.long  # executor/test_attempt_outcome.py has the words; only here a scheduler ends a job for its memory
def test_a_run_that_takes_more_memory_than_its_job_is_out_of_memory(any_home):
    home = any_home
    (home.path / "hog.py").write_text(HOG.format(take=home.take, pieces=home.pieces))
    home.run("batch_size=16", "model._target_=hog.Hog", *home.little_memory, *SLOW)
    (record,) = home.records().values()
    assert record.outcome is Outcome.out_of_memory, record.reason


@pytest.mark.long  # records/test_run_files.py continues after a killed executor; only here a scheduler kills it
@pytest.mark.timeout(500)
def test_a_job_that_comes_to_its_time_limit_is_submitted_again_for_the_rest(any_home):
    home = any_home
    driver = home.start("measure.min_seconds=35", *home.short)
    first = home.in_a_run()
    home.in_another_run(first)
    home.shorten(first.job)
    home.finished(driver)
    assert home.over in home.ended(first.job)
    assert outcomes(home) == {Outcome.measured}
    assert len(home.submitted()) == 2


@pytest.mark.long  # only here a scheduler's controller goes away
def test_a_controller_that_is_away_for_a_while_costs_nothing(any_home):
    home = any_home
    driver = home.start(*SLOW)
    owner = home.in_a_run()
    home.has("controller-away", "5")
    home.finished(driver)
    assert outcomes(home) == {Outcome.measured}
    assert home.submitted() == [owner.job]
