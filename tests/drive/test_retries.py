"""A job that fails after its block's done file was written is a good one, for a real Snakemake; others fail as ever."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

SNAKEFILE = """\
from accelsweep.drive.jobs.retries import decide

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
