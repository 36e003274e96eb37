"""Which failed or refused jobs a real Snakemake submits again, and when it polls Slurm."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from fake_clock import FakeClock

from accelsweep.driver.snakemake_hooks import DEFERRED, DRIVEN_POLL_SECONDS, STANDALONE_POLL_SECONDS, PollSchedule

SNAKEFILE = """\
from accelsweep.driver.snakemake_hooks import override_retries

onstart:
    override_retries(workflow, ["b1.done.json", "b2.done.json"])
rule all:
    input: "b1.done.json", "b2.done.json"
rule block:
    input: "b{block}.json"
    output: "b{block}.done.json"
    shell: "echo {wildcards.block} >> tried; [ {wildcards.block} = 1 ] || echo 2 > {output}; false"
"""


@pytest.mark.real
def test_a_job_that_fails_after_finishing_its_block_is_not_retried_and_any_other_is(tmp_path: Path) -> None:
    """Block 1 has an old done file and fails before writing a new one; block 2 fails after writing one."""
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
from accelsweep.driver.snakemake_hooks import override_retries
from accelsweep.features.grid_engine.scheduler import GridEngineScheduler

class Scheduler(GridEngineScheduler):
    def in_queue(self):
        return 0

onstart:
    override_retries(workflow, [], Scheduler(Site(name="x", scheduler="grid_engine")), lambda block: block == "skipped")
rule all:
    input: "b1.done", "b2.done", "b3.done", "bwrong.done", "bskipped.done"
rule block:
    output: "b{block}.done"
    shell: "[ {wildcards.block} != skipped ] && echo done > {output}"
"""

SUBMIT = """\
#!/bin/sh
# accepts one job of a user at a time, and none of the block `wrong`
echo "$1" >> asked
[ "$1" != wrong ] || { echo "Unable to run job: Job was rejected because job requests unknown queue"; exit 1; }
full="Unable to run job: job rejected: only 1 jobs are allowed per user (current job count: 1)."
mkdir queue || { echo "$full"; exit 1; }
(sh "$2"; rmdir queue) > "log.$1" 2>&1 &
echo "$!"
"""


@pytest.mark.real
def test_a_job_above_the_queue_limit_is_deferred_and_a_refused_or_skipped_one_is_not_retried(
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
    assert DEFERRED in done.stderr


FILES = ("b1.done.json", "b1.halt.json")


@pytest.fixture
def clock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeClock:
    monkeypatch.chdir(tmp_path)
    return FakeClock()


@pytest.mark.parametrize(("longest", "asked"), [(STANDALONE_POLL_SECONDS, 10), (DRIVEN_POLL_SECONDS, 2)])
def test_an_idle_sweep_polls_squeue_once_a_minute_or_every_five_minutes_under_a_driver(
    clock: FakeClock, longest: float, asked: int
) -> None:
    schedule = PollSchedule("jobs-changed", longest, clock)
    due = 0
    for _ in range(10 * 60):
        clock.advance(1.0)
        due += schedule.is_due(FILES)
    assert due == asked


@pytest.mark.parametrize(("file", "more"), [("b1.done.json", 2), ("b1.halt.json", 2), ("jobs-changed", 0)])
def test_a_file_that_marks_the_end_of_a_block_triggers_a_poll(
    clock: FakeClock, tmp_path: Path, file: str, more: int
) -> None:
    """A finished block's job ends soon: poll every five seconds. A driver's notification triggers one poll."""
    (tmp_path / file).write_text("from an earlier job")
    schedule = PollSchedule("jobs-changed", DRIVEN_POLL_SECONDS, clock)
    for _ in range(10):
        clock.advance(1.0)
        assert not schedule.is_due(FILES)
    (tmp_path / file).unlink()
    (tmp_path / file).write_text("new")
    assert schedule.is_due(FILES)
    due = 0
    for _ in range(12):
        clock.advance(1.0)
        due += schedule.is_due(FILES)
    assert due == more
