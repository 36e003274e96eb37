"""A driver in a job of its own: it waits, leaves before its time is up, and another job goes on."""

import re
import stat

import pytest
import yaml
from patience import until

from accelsweep.features.detach.places import started_driver
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


@pytest.mark.long  # features/detach/test_command.py has the rules; only here a job is told that its time is up
def test_a_head_whose_time_is_up_is_followed_by_another_and_nothing_is_lost_or_doubled(home):
    """Its time is three minutes, and the block takes longer: the block's job runs on between the two heads."""
    (home.path / "slow.py").write_text(SLOW)
    site = home.path / "conf" / "site" / "box.yaml"
    settings = yaml.safe_load(site.read_text())
    settings["slurm"]["head"] = {"partition": "cpu", "minutes": 3}
    site.write_text(yaml.safe_dump(settings))
    told = home.path / "told.txt"
    command = ("run", "experiment=tiny", "site=box", "--profile", "quick", "model._target_=slow.Slow")
    command += ("measure.max_steps=35", "measure.min_steps=35", "--notify", f"command: cat >> {told}; : {SECRET}")
    home.slurm("scontrol", "update", "partitionname=cpu", "state=down")
    try:
        left = home.accelsweep(*command, "--detach")
        assert left.returncode == 0, left.stderr
        (first,) = home.submitted()
        refused = home.accelsweep(*command)
        assert refused.returncode == 1
        assert f"Slurm's job {first} PENDING" in refused.stderr
        assert f"Slurm's job {first} PENDING" in home.say("status", "tiny")
        assert SECRET not in home.told(first)
        assert stat.S_IMODE(home.folder.driver_file("order").stat().st_mode) == 0o600
        assert home.accelsweep(*command, "--detach", "--cancel-old").returncode == 0
        assert home.state(first) == "CANCELLED"
    finally:
        home.slurm("scontrol", "update", "partitionname=cpu", "state=up")
    second = started_driver(home.folder).name
    shown = home.accelsweep("attach", "tiny")
    assert shown.returncode == 0, f"{shown.stdout}{shown.stderr}{home.log()}"
    assert re.search(r"the time of this driver is up: job \d+ takes over, with 1 job of the sweep", shown.stdout)
    assert "left by an earlier driver" in shown.stdout
    assert (home.folder.report / "index.html").exists()
    assert {record.outcome for record in home.records().values()} == {Outcome.measured}
    assert {record.attempt for record in home.records().values()} == {1}
    later = re.findall(
        r"the time of this driver is up: job (\d+) takes over", shown.stdout
    )  # several on a busy machine
    assert later[-1] == started_driver(home.folder).name
    drivers, jobs = {first, second, *later}, set(home.submitted())
    assert len(jobs - drivers) == 1, "one job of one block, submitted once"
    assert not home.folder.driver_file("order").exists()
    assert SECRET not in "".join(map(home.told, jobs))
    until(lambda: "ended, 2 of 2 runs settled" in told.read_text() if told.exists() else False, 60)


@pytest.mark.long  # road/test_detached.py ends drivers on one machine; only here a driver is a job
@pytest.mark.parametrize("plain", [False, True], ids=["as printed", "scancel"])
def test_a_head_in_a_job_is_ended_as_by_ctrl_c(home, plain):
    """The jobs of the sweep are cancelled, and the same command goes on."""
    (home.path / "slow.py").write_text(SLOW)
    command = ("run", "experiment=tiny", "site=box", "--profile", "quick", "model._target_=slow.Slow")
    left = home.accelsweep(*command, "+site.slurm.head.minutes=30", "--detach")
    assert left.returncode == 0, left.stderr
    home.in_a_run()
    (stop,) = re.findall(r"^end it(?: once it runs)?, as Ctrl-C would: (.*)$", left.stdout, re.MULTILINE)
    home.slurm(*(["scancel", started_driver(home.folder).name] if plain else stop.split()))
    shown = home.accelsweep("attach", "tiny")
    assert shown.returncode == 130, shown.stdout + shown.stderr
    assert "interrupted; every finished run is kept" in shown.stdout
    home.wait_for(lambda: not home.slurm("squeue", "--noheader").strip(), "the end of all jobs", 60)
    assert not home.folder.driver_file("order").exists()


@pytest.mark.long  # road/test_detached.py carries drivers on; only here a job is queued again
def test_a_head_whose_job_is_queued_again_leaves_the_sweeps_jobs_and_goes_on_with_them(home):
    (home.path / "slow.py").write_text(SLOW)
    command = ("run", "experiment=tiny", "site=box", "--profile", "quick", "model._target_=slow.Slow")
    left = home.accelsweep(*command, "+site.slurm.head.minutes=30", "--detach")
    assert left.returncode == 0, left.stderr
    claim, driver = home.in_a_run(), started_driver(home.folder).name
    home.slurm("scontrol", "requeue", driver)
    home.at_once(driver)
    shown = home.accelsweep("attach", "tiny")
    assert shown.returncode == 0, shown.stdout + shown.stderr
    assert f"left by an earlier driver: job {claim.job} " in shown.stdout
    assert {record.attempt for record in home.records().values()} == {1}
