"""The nodes of a real Slurm as a fleet, on a simulated device each, one of which is worn."""

import json
import os
import re
import shutil
import tempfile
from pathlib import Path

import pytest

from accelsweep.features.detach.backends import last_submission
from accelsweep.records.layout import SweepFolder
from accelsweep.records.plan import Manifest
from accelsweep.records.run_record import Record
from accelsweep.testing.simulated_device import Spec

pytestmark = pytest.mark.slurm

ROOT = Path(os.environ.get("ACCELSWEEP_SLURM_ROOT", Path(tempfile.gettempdir(), "accelsweep-slurm")))
NODES = ("gpu1", "gpu2", "gpu3")
WORN, WEAR = "gpu2", 1.02

SITE = """\
name: nodes
scheduler: slurm
nodes: 3
inventory: [{accelerator: cpu, model: virtual, count: 8}, {accelerator: simulated, model: Simulated device, count: 1}]
slurm: {partition: gpu, account: test, mem_mb: 4000}
"""
STEPS = ("batch_size=4,8", "baseline.batch_size=4", *(f"measure.{key}=4" for key in ("min_steps", "max_steps")))
FLEET = ("fleet", "experiment=tiny", "site=nodes", "accelerator=simulated", *STEPS, "--profile", "quick")


@pytest.fixture
def devices(home):
    """A device of one model in each node. Its operations take so long that a busy machine changes nothing."""
    for node in NODES:
        Spec(kernel_seconds=2e-2, wear=WEAR if node == WORN else 1.0).write(ROOT / "devices" / node)
    (home.path / "conf" / "site" / "nodes.yaml").write_text(SITE)
    yield
    shutil.rmtree(ROOT / "devices")


@pytest.mark.long  # features/fleet/test_planning.py and schedulers/test_slurm_nodes.py have the parts of it
@pytest.mark.usefixtures("devices")
def test_the_worn_node_of_a_fleet_is_named_and_makes_the_exit_code_3(home):
    refused = home.accelsweep(*FLEET, "--nodes", "gpu1,gpo2")
    assert refused.returncode == 2
    assert "there is no node 'gpo2' (did you mean 'gpu2'?)" in refused.stderr
    home.slurm("scontrol", "update", "nodename=gpu3", "state=drain", "reason=a bad board")
    assert "node gpu3 is left out: drained: a bad board" in home.accelsweep(*FLEET, "--dry-run").stdout
    home.slurm("scontrol", "update", "nodename=gpu3", "state=resume")
    assert not (home.path / "sweeps").exists()

    done = home.accelsweep(*FLEET, "--json")
    assert done.returncode in (0, 3), done.stderr
    found = json.loads(done.stdout)
    nodes = {node["node"]: node for node in found["nodes"]}
    ratio = nodes[WORN]["ratio"]
    assert ratio["low"] <= 1 / WEAR <= ratio["high"] < 1 / 1.015

    folder = SweepFolder(home.path, "fleet-tiny")
    planned = {run: block.resources.node for block in Manifest.read(folder.manifest).blocks for run in block.runs}
    records = {run: Record.read(folder.record(run)) for run in planned}
    assert {
        run: record.environment["before"]["variables"]["SLURMD_NODENAME"] for run, record in records.items()
    } == planned
    assert len({json.dumps(record.fingerprint.hardware, sort_keys=True) for record in records.values()}) == 1
    assert found["headline"] in (folder.report / "index.html").read_text()
    if "disturbed" not in {node["verdict"] for node in nodes.values()}:  # as it is beside other tests: no verdict then
        assert (done.returncode, found["sick"], found["nodes"][0]["node"]) == (3, [WORN], WORN)
        assert {nodes[node]["verdict"] for node in NODES if node != WORN} == {"sound"}
        assert re.match(r"gpu2 is (1\.9|2\.0)\d* % slower than the other nodes \[-", found["headline"])
    again = home.accelsweep(*FLEET)
    assert again.returncode == done.returncode, "nothing is measured again, and the answer stands"
    assert re.search(r"(\d+) runs, \1 settled already", again.stdout)


@pytest.mark.long  # the driver's job; features/detach/test_command.py detaches a fleet on one machine
@pytest.mark.usefixtures("devices")
def test_a_fleet_whose_head_is_a_job_ends_with_the_fleets_own_words_and_code(home):
    command = (*FLEET, "--each", "2", "+site.slurm.driver.minutes=30", "--detach")
    refused = home.accelsweep(*command)
    assert refused.returncode == 2
    assert "set site.slurm.driver.partition to a partition with other nodes" in refused.stderr
    assert not home.left()
    left = home.accelsweep(*command, "--nodes", "gpu1,gpu2")
    assert left.returncode == 0, left.stderr
    driver = last_submission(SweepFolder(home.path, "fleet-tiny")).name
    home.wait_for(lambda: "NodeList=gpu3" in home.told(driver), "the driver beside the nodes that it compares", 60)
    shown = home.accelsweep("attach", "fleet-tiny")
    assert shown.returncode in (0, 3), f"{shown.stdout}{shown.stderr}{home.log()}"
    again = home.accelsweep(*FLEET, "--nodes", "gpu1,gpu2", "--each", "2", "--json")
    assert again.returncode == shown.returncode
    found = json.loads(again.stdout)
    assert {node["node"] for node in found["nodes"]} == {"gpu1", "gpu2"}
    assert found["headline"] in shown.stdout
    assert not SweepFolder(home.path, "fleet-tiny").driver_file("order").exists()
