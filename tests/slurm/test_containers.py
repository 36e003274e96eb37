"""Runs on several nodes whose ranks live in containers: srun is outside, and starts a container on each node.

The containers are podman's, where it can run one, and a mount namespace that stands for programs that cannot be had.
"""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from slurm_home import first_rank

from accelsweep.results import Outcome

HERE = Path(__file__).parent
TWO_NODES = ("num_nodes=2", "devices=2", "batch_size=16")

IS_INSIDE = 'os.path.exists("/container") and not os.access("/usr/bin/srun", os.X_OK)'
INSIDE = f"""
import os
from accelsweep.workloads.image_models import SmallCNN

class Contained(SmallCNN):
    def __init__(self, **arguments):
        super().__init__(**arguments)
        assert {IS_INSIDE}
"""

pytestmark = [pytest.mark.slurm, pytest.mark.long]  # executor/test_srun.py has the parts; only here they meet


def without_podman():
    """Return why podman runs no container here; None where it does."""
    if shutil.which("podman") is None or shutil.which("runc") is None:
        return "there is no podman with runc"
    tried = subprocess.run([HERE / "podman.sh", "true"], capture_output=True, text=True, check=False)
    return f"podman runs no container here: {tried.stderr}" if tried.returncode else None


@pytest.fixture(params=["container.sh", "podman.sh"])
def contained(home, request):
    """A home whose site has a container, and whose model cannot be made outside of it."""
    if request.param == "podman.sh" and (why := without_podman()):
        pytest.skip(why)
    (home.path / "contained.py").write_text(INSIDE)
    site = home.path / "conf" / "site" / "box.yaml"
    settings = yaml.safe_load(site.read_text())
    settings["slurm"] |= {"container": str(HERE / request.param), "container_python": sys.executable}
    site.write_text(yaml.safe_dump(settings))
    return home


def test_one_sweep_compares_one_node_with_two_in_containers(contained):
    output = contained.run("num_nodes=1,2", *TWO_NODES[1:], "model._target_=contained.Contained")
    assert "[2/2]" in output
    records = contained.records().values()
    assert {record.outcome for record in records} == {Outcome.measured}, [record.reason for record in records]
    assert {(record.effective.num_nodes, record.effective.launcher) for record in records} == {(1, "fork"), (2, "srun")}


def test_a_cancelled_job_of_two_nodes_leaves_no_container_and_goes_on_in_the_next(contained):
    arguments = (*TWO_NODES, "measure.min_seconds=6", "model._target_=contained.Contained")
    driver = contained.start(*arguments)
    owner = contained.in_a_run()
    progress = contained.folder.run(owner.run) / "attempts" / "1" / "progress"
    contained.wait_for(progress.exists, "the first step", 90)
    contained.slurm("scancel", owner.job)
    contained.finished(driver)
    (record,) = contained.records().values()
    assert (record.outcome, record.attempt) == (Outcome.measured, 2)
    assert not contained.across_nodes()


def test_a_rank_that_is_killed_in_its_container_is_a_crash_with_its_reason(contained):
    driver = contained.start(*TWO_NODES, "measure.min_seconds=6", "limits.retries=0")
    run = contained.in_a_run().run
    contained.wait_for((contained.folder.run(run) / "attempts" / "1" / "progress").exists, "the first step", 90)
    nodes = contained.across_nodes()
    assert nodes.keys() == {"0", "1"}
    first_rank(nodes["1"]).kill()
    contained.finished(driver, 1)
    (record,) = contained.records().values()
    assert record.outcome is Outcome.crashed
    assert "rank 2 was ended by SIGKILL" in record.reason, record.reason


@pytest.mark.parametrize("contained", ["container.sh"], indirect=True)
def test_srun_that_starts_the_container_itself_starts_it_on_each_node(contained):
    """As pyxis does, whose options are srun's; here an option of srun's own marks the environment."""
    (contained.path / "contained.py").write_text(INSIDE.replace(IS_INSIDE, 'os.environ["BOXED"] == "yes"'))
    site = contained.path / "conf" / "site" / "box.yaml"
    settings = yaml.safe_load(site.read_text())
    settings["slurm"]["container"] = "srun --overlap --nodes=1 --ntasks=1 --export=ALL,BOXED=yes"
    site.write_text(yaml.safe_dump(settings))
    contained.run("num_nodes=1,2", *TWO_NODES[1:], "model._target_=contained.Contained")
    assert {record.outcome for record in contained.records().values()} == {Outcome.measured}
