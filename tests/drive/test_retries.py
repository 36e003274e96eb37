"""What a real Snakemake does about jobs of blocks that failed, or that an engine refused."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from accelsweep.driver.job_retries import HELD_BACK

SNAKEFILE = """\
from accelsweep.driver.job_retries import decide

onstart:
    decide(workflow, ["b1.done.json", "b2.done.json"])
rule all:
    input: "b1.done.json", "b2.done.json"
rule block:
    input: "b{block}.json"
    output: "b{block}.done.json"
    shell: "echo {wildcards.block} >> tried; [ {wildcards.block} = 1 ] || echo 2 > {output}; false"
"""


@pytest.mark.real
def test_a_job_that_fails_after_its_block_is_finished_is_not_tried_again_and_any_other_is(tmp_path: Path) -> None:
    """Block 1 has a done file of an earlier time and fails before it has a new one. Block 2 fails when it has."""
    (tmp_path / "Snakefile").write_text(SNAKEFILE)
    for number in (1, 2):
        (tmp_path / f"b{number}.json").write_text("{}")
    (tmp_path / "b1.done.json").write_text("old")
    os.utime(tmp_path / "b1.done.json", (1, 1))
    command = [sys.executable, "-m", "snakemake", "--cores", "1", "--retries", "1", "--keep-going", "--nolock"]
    environment = os.environ | {"XDG_CACHE_HOME": str(tmp_path / "cache")}
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert sorted((tmp_path / "tried").read_text().split()) == ["1", "1", "2"], done.stderr
    assert not (tmp_path / "b1.done.json").exists()
    assert (tmp_path / "b2.done.json").read_text().strip() == "2"


LIMITED = """\
from accelsweep.config.site import Site
from accelsweep.driver.job_retries import decide
from accelsweep.features.grid_engine.scheduler import GridEngineScheduler

class Engine(GridEngineScheduler):
    def in_queue(self):
        return 0

onstart:
    decide(workflow, [], Engine(Site(name="x", scheduler="grid_engine")), lambda block: block == "left")
rule all:
    input: "b1.done", "b2.done", "b3.done", "bwrong.done", "bleft.done"
rule block:
    output: "b{block}.done"
    shell: "[ {wildcards.block} != left ] && echo done > {output}"
"""

SUBMIT = """\
#!/bin/sh
# a queue that takes one job of a user, and none of the block `wrong`
echo "$1" >> asked
[ "$1" != wrong ] || { echo "Unable to run job: Job was rejected because job requests unknown queue"; exit 1; }
full="Unable to run job: job rejected: only 1 jobs are allowed per user (current job count: 1)."
mkdir queue || { echo "$full"; exit 1; }
(sh "$2"; rmdir queue) > "log.$1" 2>&1 &
echo "$!"
"""


@pytest.mark.real
def test_a_job_too_many_is_submitted_when_another_has_ended_and_a_refusal_or_a_block_left_out_is_not_tried_again(
    tmp_path: Path,
) -> None:
    (tmp_path / "Snakefile").write_text(LIMITED)
    (tmp_path / "submit").write_text(SUBMIT)
    (tmp_path / "submit").chmod(0o755)
    options = ["--executor", "cluster-generic", "--cluster-generic-submit-cmd", "./submit {wildcards.block}"]
    options += ["--jobs", "5", "--retries", "1", "--keep-going", "--nolock", "--seconds-between-status-checks", "1"]
    options += ["--latency-wait", "2", "--scheduler", "greedy"]
    environment = os.environ | {"XDG_CACHE_HOME": str(tmp_path / "cache")}
    command = [sys.executable, "-m", "snakemake", *options]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert all((tmp_path / f"b{number}.done").exists() for number in (1, 2, 3)), done.stderr
    asked = (tmp_path / "asked").read_text().split()
    assert asked.count("wrong") == 1, "it would be refused again"
    assert "Trying to restart" not in done.stderr
    assert "(only 1 jobs are allowed per user (current job count: 1).)" in done.stderr
    assert HELD_BACK in done.stderr
