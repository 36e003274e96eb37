"""Two commits under Slurm: a block is one job, in which both of them are measured."""

from __future__ import annotations

import subprocess
import sys

import pytest
from user_repository import EXPERIMENT, MODULE, commit, git

from accelsweep.records.layout import SweepFolder
from accelsweep.records.plan import Manifest
from accelsweep.records.run_record import Record
from accelsweep.results import Outcome

pytestmark = pytest.mark.slurm


@pytest.mark.long  # features/ab keeps versions in one block, test_one_command.py makes it a job; here both meet
def test_one_job_measures_both_versions_of_a_block(home):
    git(home.path, "init", "--quiet", "--initial-branch=main")
    ignored = "sweeps/\nreports/\nslurm-logs/\nleases/\nmlflow.db*\n__pycache__/\n.snakemake/\n"
    files = {"toy.py": MODULE, "conf/experiment/toy.yaml": EXPERIMENT, ".gitignore": ignored}
    old = commit(home.path, files)
    new = commit(home.path, {"toy.py": f"{MODULE}# later\n"})
    command = [sys.executable, "-m", "accelsweep", "ab", "HEAD~1", "HEAD", "experiment=toy", "site=box"]
    driver = subprocess.Popen(
        [*command, "--profile", "quick", "--name", "tiny"],
        cwd=home.path,
        env=home.environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    home.drivers.append(driver)
    output = home.finished(driver)
    assert "[4/4]" in output
    manifest = Manifest.read(home.folder.manifest)
    assert len(manifest.blocks) == 2
    assert len(home.submitted()) == 2, "a job for each block"
    for block in manifest.blocks:
        records = [Record.read(home.folder.record(run)) for run in block.runs]
        assert {record.outcome for record in records} == {Outcome.measured}
        assert {record.git["commit"] for record in records} == {old, new}
        (job,) = [one for one in home.submitted() if block.name in home.told(one)]
        assert "JobState=COMPLETED" in home.told(job)
        assert len({record.environment["before"]["host"] for record in records}) == 1
    assert SweepFolder(home.path, "tiny").version(old[:12]).is_dir()
