"""One command from the login node: blocks become jobs, and the same records, report and MLflow runs come back."""

import re
import subprocess
import sys
from pathlib import Path

import pytest
from patience import PATIENCE_SECONDS

from accelsweep.core.outcome import Outcome
from accelsweep.core.plans import Manifest
from accelsweep.core.record import Record
from accelsweep.state.folders import SweepFolder

REPOSITORY = Path(__file__).resolve().parents[2]

pytestmark = pytest.mark.slurm


def test_a_sweep_goes_through_slurm_to_its_report(home):
    output = home.run()
    assert "[2/2]" in output
    assert {record.outcome for record in home.records().values()} == {Outcome.measured}
    assert (home.folder.report / "index.html").exists()
    assert (home.path / "mlflow.db").exists()
    (job,) = home.submitted()
    told = home.slurm("scontrol", "show", "job", job)
    (block,) = (path.name.removesuffix(".done.json") for path in home.folder.root.glob("blocks/*.done.json"))
    for part in (f"tiny_{block}", "gpu:h100:1", "mem=4000M", "Partition=gpu", "NumNodes=1", "JobState=COMPLETED"):
        assert part in told, told
    assert list(home.path.glob(f"slurm-logs/*/*/{job}.log"))
    before = {run: record.started_at for run, record in home.records().items()}
    assert "0 new" in home.run()  # nothing is submitted again
    assert {run: record.started_at for run, record in home.records().items()} == before
    assert home.submitted() == [job]


def test_a_cell_has_the_same_threads_in_every_block(home):
    """On a node of two cores a cell of one rank has both of them, alone in its job and beside a cell of two ranks."""
    home.run("threads=null", "devices=1,2", "site.inventory=[{accelerator: cpu, model: virtual, count: 2}]")
    records = list(home.records().values())
    assert {record.outcome for record in records} == {Outcome.measured}
    baseline = Manifest.read(home.folder.manifest).baseline
    jobs = {record.block: record.effective.threads_per_rank for record in records if record.cell == baseline}
    assert list(jobs.values()) == [2, 2]


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
from accelsweep.workloads.models import SmallCNN

class Contained(SmallCNN):
    def __init__(self, **arguments):
        super().__init__(**arguments)
        assert os.environ["IN_CONTAINER"] == "yes"
"""


def test_blocks_run_in_the_sites_container(home):
    (home.path / "container").write_text(CONTAINER)
    (home.path / "container").chmod(0o755)
    (home.path / "contained.py").write_text(MODULE)
    container = f"{home.path}/container exec --nv image.sif"
    home.run(
        f"+site.slurm.container='{container}'",
        f"+site.slurm.container_python={sys.executable}",
        "model._target_=contained.Contained",
    )
    assert {record.outcome for record in home.records().values()} == {Outcome.measured}
    (line,) = (home.path / "container.log").read_text().splitlines()
    assert line.startswith(f"{sys.executable} -m accelsweep.supervise sweeps/tiny/blocks/b")


def test_snakemake_alone_goes_through_slurm_too_whatever_the_sweep_is_called(home):
    experiments = home.path / "conf" / "experiment"
    (experiments / "claims").mkdir()
    (experiments / "tiny.yaml").rename(experiments / "claims" / "mine.yaml")
    folder = SweepFolder(home.path, "claims-mine")
    command = [sys.executable, "-m", "snakemake", "--snakefile", REPOSITORY / "Snakefile", "--profile", "quick"]
    command += ["--config", "experiment=claims/mine", "overrides=site=box +site.slurm.max_gpus=1"]
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
    assert re.search(r"^Provided resources: gpu=\D*\b1\b", done.stderr, re.MULTILINE), done.stderr
    runs = Manifest.read(folder.manifest).wanted_runs()
    assert {Record.read(folder.record(run)).outcome for run in runs} == {Outcome.measured}
    assert len(home.submitted()) == 1
    assert (folder.report / "index.html").exists()


def test_a_damaged_plan_is_made_anew(home):
    home.run()
    manifest = home.folder.manifest
    manifest.write_text("[")
    output = home.run()
    assert "set aside and planned again" in output
    assert Manifest.read(manifest).sweep == "tiny"
    assert len(home.submitted()) == 1, "what was measured stands"
