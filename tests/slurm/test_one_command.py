"""One command from the login node: blocks become jobs, and the same records, report and MLflow runs come back."""

import os
import re
import shlex
import shutil
import subprocess
import sys
import time
from itertools import pairwise
from pathlib import Path

import pytest
import yaml
from polling import PATIENCE_SECONDS

from accelsweep.features.accounting.sacct import NO_ENERGY, Accounting, accounting_file
from accelsweep.records.findings import Findings
from accelsweep.records.layout import SweepFolder
from accelsweep.records.plan import Manifest
from accelsweep.records.run_record import Record
from accelsweep.results import Outcome

REPOSITORY = Path(__file__).resolve().parents[2]

pytestmark = pytest.mark.slurm


def told_of_jobs(home):
    """What the cluster's accounting says of the sweep's job stands in findings and report, or why it says nothing."""
    found = [setting.metrics["job_queue_seconds"] for setting in Findings.read(home.folder.findings).settings]
    page = (home.folder.report / "report.md").read_text()
    if home.why_no("accounting"):
        assert {one.median for one in found} == {None}
        assert "Wait in the queue: not measured" in page
        return
    assert {one.provenance for one in found} == {"slurm"}
    assert all(one.median is not None and 0 <= one.median < 120 for one in found)
    assert "## Jobs on the cluster" in page
    (job,) = Accounting.read(accounting_file(home.folder)).jobs.values()
    assert (job.number, job.state, job.energy_reason) == (*home.submitted(), "COMPLETED", NO_ENERGY)


ORDERS = {
    "SBATCH_WAIT": "1",
    "SBATCH_PARTITION": "cpu",
    "SBATCH_MEM_PER_NODE": "1",
    "SQUEUE_STATES": "SUSPENDED",
    "SQUEUE_USERS": "nobody",
    "SLURM_TIME_FORMAT": "relative",
    "SLURM_CLUSTERS": "another",
    "SNAKEMAKE_SLURM_PARTITIONS": "/nowhere",
}
"""What a user's shell may say to Slurm's commands, and to Snakemake's plugin for it."""


def stored_environment(job):
    """What Slurm stores of the environment of a job, and shows to its administrators."""
    root = Path(os.environ.get("ACCELSWEEP_SLURM_ROOT") or Path(os.environ.get("TMPDIR") or "/tmp", "accelsweep-slurm"))
    (stored,) = root.glob(f"state/hash.*/job.{job}/environment")
    return {part.partition(b"=")[0].decode("utf-8", "replace") for part in stored.read_bytes().split(b"\0")}


def test_a_sweep_goes_through_slurm_to_its_report(home):
    """Settings of one and of two ranks share the job of a whole node, in which each has the threads of its own.

    The user's variables and default profile say otherwise, and hold secrets.
    """
    home.environment |= ORDERS | {"HF_TOKEN": "x", "STORE": "https://me:pass@host", "TOKENIZERS_PARALLELISM": "false"}
    (home.path / "profiles" / "default").mkdir(parents=True)
    (home.path / "profiles" / "default" / "profile.yaml").write_text("dry-run: true\n")
    few = ("measure.warmup_steps=2", "measure.min_steps=4", "measure.max_steps=4")  # two threads on a busy core wait
    sizes = (*few, "threads=null", "devices=1,2", "site.inventory=[{accelerator: cpu, model: virtual, count: 2}]")
    output = home.run(*sizes)
    assert "[5/5]" in output
    records = home.records()
    assert {record.outcome for record in records.values()} == {Outcome.measured}
    assert (home.folder.report / "index.html").exists()
    assert (home.path / "mlflow.db").exists()
    assert len(home.submitted()) == 1
    assert "jobs do not receive HF_TOKEN, STORE; if they need one, list it in site.slurm.secrets" in output
    assert "sbatch does not receive SBATCH_MEM_PER_NODE, SBATCH_PARTITION, SBATCH_WAIT: use the site file" in output
    gpus = set()
    for job in home.submitted():
        told = home.told(job)
        kept = stored_environment(job)
        assert {"TOKENIZERS_PARALLELISM", "PATH"} <= kept
        assert kept.isdisjoint({"HF_TOKEN", "STORE", *ORDERS})
        (block,) = [
            path.name.removesuffix(".done.json")
            for path in home.folder.root.glob("blocks/*.done.json")
            if f"tiny_{path.name.removesuffix('.done.json')}" in told
        ]
        for part in (f"tiny_{block}", "mem=4000M", "Partition=gpu", "NumNodes=1", "JobState=COMPLETED"):
            assert part in told, told
        assert list(home.path.glob(f"slurm-logs/*/*/{job}.log"))
        gpus |= set(re.findall(r"gpu:h100:(\d)", told))
    assert gpus == {"1"}, "the site asks for one, whatever the setting is"
    baseline = Manifest.read(home.folder.manifest).baseline
    threads = {
        (record.block, record.effective.threads_per_rank) for record in records.values() if record.setting == baseline
    }
    assert [number for _, number in threads] == [2]
    told_of_jobs(home)
    jobs, before = home.submitted(), {run: record.started_at for run, record in records.items()}
    assert re.search(r"(\d+) runs, \1 settled already", home.run(*sizes))  # nothing is submitted again
    assert {run: record.started_at for run, record in home.records().items()} == before
    assert home.submitted() == jobs


OWN_DATA = """
from accelsweep.workloads.datasets import Digits

class Rooted(Digits):
    def __init__(self, root, **arguments):
        super().__init__(**arguments)
        with open(f"{root}/kind") as file:
            print("reading the", file.read(), "set")
"""


@pytest.mark.long  # three jobs, one after another; executor/test_result_reuse.py has the same in milliseconds
def test_on_a_cluster_too_results_are_reused_only_with_the_same_paths_and_links(home):
    for kind in ("fast", "slow"):
        (home.path / kind / "x").mkdir(parents=True)
        (home.path / kind / "x" / "kind").write_text(kind)
    (home.path / "set").symlink_to("fast/x")
    (home.path / "own_data.py").write_text(OWN_DATA)
    own = ("data._target_=own_data.Rooted",)

    def logs():
        return "".join((home.folder.run(run) / "run.log").read_text() for run in home.records())

    home.run(*own, f"data.root={home.path}/set")
    assert "reading the fast set" in logs()
    jobs, before = home.submitted(), home.records()
    home.run(*own, f"data.root={home.path}/set")
    assert (home.submitted(), home.records()) == (jobs, before)
    (home.path / "set").unlink()
    (home.path / "set").symlink_to("slow/x")
    home.run(*own, f"data.root={home.path}/set")
    assert len(home.submitted()) == len(jobs) + 1
    assert "reading the slow set" in logs()
    assert {record.attempt for record in home.records().values()} == {2}
    home.run(*own, f"data.root={home.path}/fast/x,{home.path}/slow/x", "batch_size=16")
    assert len(home.submitted()) == len(jobs) + 2
    assert {record.outcome for record in home.records().values()} == {Outcome.measured}
    assert "reading the fast set" in logs()
    assert "reading the slow set" in logs()


@pytest.mark.long  # planning/test_resources.py sends settings to their kind; only here Slurm has three kinds of node
def test_one_command_measures_on_three_kinds_of_node_and_tells_them_apart(home):
    """Two kinds of GPU, which the plugin's options ask for in two ways, and nodes without one."""
    kinds = ("accelerator=cpu:plain,cpu:h100,cpu:a100", "+baseline.accelerator=cpu:plain", "site=kinds")
    home.run(*kinds, "batch_size=16", "threads=1")
    records = home.records().values()
    assert {record.outcome for record in records} == {Outcome.measured}
    assert {record.axes["accelerator"] for record in records} == {"cpu:plain", "cpu:h100", "cpu:a100"}
    jobs = [home.told(job) for job in home.submitted()]
    places = {re.search(r"\bNodeList=(\w+)", told)[1]: re.findall(r"gpu:\w+:\d", told) for told in jobs}
    assert len(places) == len(jobs) == 3
    assert set(places.pop("gpu3")) == {"gpu:a100:2"}
    assert places.pop("cpu1") == []
    assert [set(asked) for asked in places.values()] == [{"gpu:h100:1"}]
    listed = home.say("runs", "tiny")
    assert "h100 CPU" in listed
    assert "a100 CPU" in listed


CONTAINER = """\
#!/bin/sh
# stands for `apptainer exec --nv IMAGE`: something of another's making that starts what comes after its own arguments
[ "$1 $2" = "exec --nv" ] || exit 9
shift 3
echo "$@" >> container.log
IN_CONTAINER=yes exec "$@"
"""

MODULE = """
import os
from accelsweep.workloads.image_models import SmallCNN

class Contained(SmallCNN):
    def __init__(self, **arguments):
        super().__init__(**arguments)
        assert os.environ["IN_CONTAINER"] == "yes"
"""


@pytest.mark.long  # schedulers/test_slurm.py and end_to_end/test_snakemake_alone.py test one each; only here they meet
def test_snakemake_alone_goes_through_slurm_too_in_the_sites_container_whatever_the_sweep_is_called(home):
    (home.path / "container").write_text(CONTAINER)
    (home.path / "container").chmod(0o755)
    (home.path / "contained.py").write_text(MODULE)
    experiments = home.path / "conf" / "experiment"
    (experiments / "claims").mkdir()
    (experiments / "tiny.yaml").rename(experiments / "claims" / "mine.yaml")
    folder = SweepFolder(home.path, "claims-mine")
    site = home.path / "conf" / "site" / "box.yaml"
    container = {"container": f"{home.path}/container exec --nv image.sif", "container_python": sys.executable}
    settings = yaml.safe_load(site.read_text())
    settings["slurm"] |= container
    site.write_text(yaml.safe_dump(settings))
    command = [sys.executable, "-m", "snakemake", "--snakefile", REPOSITORY / "Snakefile", "--profile", "quick"]
    command += [
        "--config",
        "experiment=claims/mine",
        "overrides=site=box +site.slurm.max_gpus=1 model._target_=contained.Contained",
    ]
    done = subprocess.run(
        command,
        cwd=home.path,
        env=home.environment,
        capture_output=True,
        text=True,
        timeout=PATIENCE_SECONDS,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert re.search(r"^Provided resources: gpus_held=\D*\b1\b", done.stderr, re.MULTILINE), done.stderr
    runs = Manifest.read(folder.manifest).wanted_runs()
    assert {Record.read(folder.record(run)).outcome for run in runs} == {Outcome.measured}
    assert len(home.submitted()) == 1
    assert "JobName=accelsweep-claims-mine_" in home.told(home.submitted()[0]), "without a driver, too"
    assert (folder.report / "index.html").exists()
    (line,) = (home.path / "container.log").read_text().splitlines()
    assert line.startswith(f"{sys.executable} -P -m accelsweep.executor sweeps/claims-mine/blocks/b")


@pytest.mark.long  # tests/faults damages plans and completes such sweeps; only here their blocks are jobs
def test_a_damaged_plan_is_made_anew(home):
    home.run()
    manifest = home.folder.manifest
    manifest.write_text("[")
    output = home.run()
    assert "set aside and planned again" in output
    assert Manifest.read(manifest).sweep == "tiny"
    assert len(home.submitted()) == 1, "what was measured stands"


@pytest.mark.long  # schedulers/test_slurm_site.py reads drafts; only here one goes the whole way
def test_a_draft_as_it_is_written_goes_through_doctor_plan_run_fleet_and_detach(home):
    """It states no memory, and the partition of its CPU nodes has one node, which a detached driver must not hold."""

    def done(*arguments, codes=(0,)):
        ended = home.accelsweep(*arguments)
        assert ended.returncode in codes, f"{ended.stdout}{ended.stderr}{home.log()}"
        return ended.stdout + ended.stderr

    printed = done("site", "drafted", "--from-slurm")
    written = (home.path / "conf" / "site" / "drafted.yaml").read_text()
    home.slurm("scontrol", "update", "partitionname=cpu", "DefMemPerNode=500")
    try:
        found = done("doctor", "site=drafted")
        assert "note memory of a job of cpu: the default is 500 MB per node" in found
        done("site", "little", "--from-slurm")
    finally:
        home.slurm("scontrol", "update", "partitionname=cpu", "DefMemPerNode=0")
    kinds = {kind["name"]: kind for kind in yaml.safe_load((home.path / "conf/site/little.yaml").read_text())["kinds"]}
    assert kinds["cpu"]["slurm"]["mem_mb"] == 4000
    (plan,) = re.findall(r"^accelsweep (plan .*)$", printed, re.MULTILINE)
    assert "accelerator=cpu,cuda:h100,cuda:a100" in plan, "gpu1 is in four partitions and in one kind"
    done(*shlex.split(plan))
    tiny = ("experiment=tiny", "site=drafted", "--profile", "quick")
    done("run", *tiny)
    assert {record.outcome for record in home.records().values()} == {Outcome.measured}
    assert (home.folder.report / "index.html").exists()
    fleet = ("measure.min_seconds=0.05", "accelerator=cpu:h100", "baseline.accelerator=cpu:h100", "batch_size=16")
    done("fleet", *tiny, *fleet, "--nodes", "gpu1,gpu2", "--each", "2", codes=(0, 1, 3))
    assert (home.path / "reports" / "fleet-tiny" / "index.html").exists()
    left = done("run", *tiny, "--name", "away", "--detach")
    assert "the driver runs in the background" in left
    done("attach", "away")
    assert (home.path / "reports" / "away" / "index.html").exists()
    assert (home.path / "conf" / "site" / "drafted.yaml").read_text() == written


COUNTING = """\
#!/bin/sh
echo "$(date +%s.%N) $*" >> "{log}"
exec {program} "$@"
"""
WAITING_SECONDS = 190


@pytest.mark.long  # driver/test_job_queue.py and test_snakemake_hooks.py count polls; only here a plugin polls
def test_while_all_jobs_wait_the_controller_is_asked_once_a_minute_and_the_end_of_a_job_is_learned_at_once(home):
    """Programs that count their calls stand before the real ones on the driver's PATH."""
    counting = home.path / "counting"
    counting.mkdir()
    logs = {name: home.path / f"{name}.log" for name in ("squeue", "scontrol", "sacct")}
    for name, log in logs.items():
        if program := shutil.which(name):
            (counting / name).write_text(COUNTING.format(log=log, program=program))
            (counting / name).chmod(0o755)
    home.environment |= {"PATH": f"{counting}:{home.environment['PATH']}"}
    home.hold_back()
    driver = home.start()
    try:
        home.wait_for(home.left, "the job to be submitted")
        time.sleep(WAITING_SECONDS)
        asked = [float(line.split()[0]) for line in logs["squeue"].read_text().splitlines()]
    finally:
        home.let_go()
    # Before and just after the submission a new driver looks for jobs of an earlier one, and for its own.
    waiting = [at for at in asked if at > asked[0] + 60.0]
    assert len(waiting) >= 2
    assert min(after - before for before, after in pairwise(waiting)) > 55.0, asked
    output = home.finished(driver)
    assert "[2/2]" in output
    (done,) = home.folder.root.glob("blocks/*.done.json")
    assert home.folder.findings.stat().st_mtime - done.stat().st_mtime < 40.0, "Snakemake need not wait for a minute"
    # The two of the job itself come later: its Snakemakes import the plugin.
    read = [line.partition(" ") for line in logs["scontrol"].read_text().splitlines()]
    configured = [at for at, _, words in read if words == "show config" and float(at) <= asked[-1]]
    assert len(configured) <= 2, read
    sys.stdout.write(f"squeue calls in {WAITING_SECONDS} s of waiting: {len(waiting)}; scontrol: {len(configured)}\n")
