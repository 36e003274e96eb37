"""A driver in a Slurm job: it is pending, leaves before its time limit, and a successor continues."""

import re
import stat

import pytest
import yaml
from polling import until

from accelsweep.features.detach.backends import last_submission
from accelsweep.results import Outcome

pytestmark = pytest.mark.slurm

SECRET = "T0K3N"

SLOW = """\
import time
from accelsweep.workloads.image_models import SmallCNN


class Slow(SmallCNN):
    def training_step(self, batch, batch_index):
        time.sleep(2)
        return super().training_step(batch, batch_index)
"""


@pytest.mark.long  # tests/features/detach/test_command.py has the rules; only here a job is signalled in time
def test_a_driver_at_its_time_limit_has_a_successor_and_nothing_is_lost_or_repeated(home):
    """Its limit is three minutes, and the block takes longer, so the block's job keeps running between two drivers."""
    (home.path / "slow.py").write_text(SLOW)
    site = home.path / "conf" / "site" / "box.yaml"
    settings = yaml.safe_load(site.read_text())
    settings["slurm"]["driver"] = {"partition": "cpu", "minutes": 3}
    site.write_text(yaml.safe_dump(settings))
    told = home.path / "told.txt"
    command = ("run", "experiment=tiny", "site=box", "--profile", "quick", "model._target_=slow.Slow")
    command += ("measure.max_steps=50", "measure.min_steps=50", "measure.max_seconds=200")
    command += ("--notify", f"command: cat >> {told}; : {SECRET}")
    home.slurm("scontrol", "update", "partitionname=cpu", "state=down")
    try:
        left = home.accelsweep(*command, "--detach")
        assert left.returncode == 0, left.stderr
        (first,) = home.submitted()
        refused = home.accelsweep(*command)
        assert refused.returncode == 1
        assert f"Slurm job {first} PENDING" in refused.stderr
        assert f"Slurm job {first} PENDING" in home.say("status", "tiny")
        assert SECRET not in home.told(first)
        assert stat.S_IMODE(home.folder.driver_file("order").stat().st_mode) == 0o600
        assert home.accelsweep(*command, "--detach", "--cancel-old").returncode == 0
        assert home.state(first) == "CANCELLED"
    finally:
        home.slurm("scontrol", "update", "partitionname=cpu", "state=up")
    second = last_submission(home.folder).name
    shown = home.accelsweep("attach", "tiny")
    assert shown.returncode == 0, f"{shown.stdout}{shown.stderr}{home.log()}"
    assert re.search(r"the driver reached its time limit: job \d+ takes over, with 1 job of the sweep", shown.stdout)
    assert "left by an earlier driver" in shown.stdout
    assert (home.folder.report / "index.html").exists()
    assert {record.outcome for record in home.records().values()} == {Outcome.measured}
    assert {record.attempt for record in home.records().values()} == {1}
    later = re.findall(
        r"the driver reached its time limit: job (\d+) takes over", shown.stdout
    )  # several on a busy machine
    assert later[-1] == last_submission(home.folder).name
    drivers, jobs = {first, second, *later}, set(home.submitted())
    assert len(jobs - drivers) == 1, "one job of one block, submitted once"
    assert not home.folder.driver_file("order").exists()
    assert SECRET not in "".join(map(home.told, jobs))
    until(lambda: "ended, 2 of 2 runs settled" in told.read_text() if told.exists() else False, 60)


@pytest.mark.long  # end_to_end/test_detached.py stops drivers on one machine; only here a driver is a job
@pytest.mark.parametrize("plain", [False, True], ids=["as printed", "scancel"])
def test_a_driver_in_a_job_is_stopped_like_by_ctrl_c(home, plain):
    """The jobs of the sweep are cancelled, and the same command resumes."""
    (home.path / "slow.py").write_text(SLOW)
    command = ("run", "experiment=tiny", "site=box", "--profile", "quick", "model._target_=slow.Slow")
    left = home.accelsweep(*command, "+site.slurm.driver.minutes=30", "--detach")
    assert left.returncode == 0, left.stderr
    home.in_a_run()
    (stop,) = re.findall(r"^stop it(?: once it runs)?, like Ctrl-C: (.*)$", left.stdout, re.MULTILINE)
    home.slurm(*(["scancel", last_submission(home.folder).name] if plain else stop.split()))
    shown = home.accelsweep("attach", "tiny")
    assert shown.returncode == 130, shown.stdout + shown.stderr
    assert "interrupted; every finished run is kept" in shown.stdout
    home.wait_for(lambda: not home.slurm("squeue", "--noheader").strip(), "the end of all jobs", 60)
    assert not home.folder.driver_file("order").exists()


@pytest.mark.long  # end_to_end/test_detached.py resumes drivers; only here a job is requeued
def test_a_requeued_driver_leaves_the_sweeps_jobs_running_and_resumes_with_them(home):
    (home.path / "slow.py").write_text(SLOW)
    command = ("run", "experiment=tiny", "site=box", "--profile", "quick", "model._target_=slow.Slow")
    left = home.accelsweep(*command, "+site.slurm.driver.minutes=30", "--detach")
    assert left.returncode == 0, left.stderr
    owner, driver = home.in_a_run(), last_submission(home.folder).name
    home.slurm("scontrol", "requeue", driver)
    home.at_once(driver)
    shown = home.accelsweep("attach", "tiny")
    assert shown.returncode == 0, shown.stdout + shown.stderr
    assert f"left by an earlier driver: job {owner.job} " in shown.stdout
    assert {record.attempt for record in home.records().values()} == {1}
