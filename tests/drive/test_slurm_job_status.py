"""A job that fails after its block's done file was written is a good one, for a real Snakemake; others fail as ever."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from hand_clock import FakeClock

from accelsweep.drive.slurm.job_status import ALONE_SECONDS, DRIVEN_SECONDS, Questions

SNAKEFILE = """\
from accelsweep.drive.slurm.job_status import finished_blocks_win

onstart:
    finished_blocks_win(workflow, ["b1.done.json", "b2.done.json"])
rule all:
    input: "b1.done.json", "b2.done.json"
rule block:
    input: "b{number}.json"
    output: "b{number}.done.json"
    shell: "echo {wildcards.number} >> tried; [ {wildcards.number} = 1 ] || echo 2 > {output}; false"
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


FILES = ("b1.done.json", "b1.halt.json")


@pytest.fixture
def clock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeClock:
    monkeypatch.chdir(tmp_path)
    return FakeClock()


@pytest.mark.parametrize(("longest", "asked"), [(ALONE_SECONDS, 10), (DRIVEN_SECONDS, 2)])
def test_while_nothing_happens_squeue_is_asked_once_a_minute_and_under_a_driver_once_in_five(
    clock: FakeClock, longest: float, asked: int
) -> None:
    questions = Questions("jobs-changed", longest, clock)
    due = 0
    for _ in range(10 * 60):
        clock.advance(1.0)
        due += questions.due(FILES)
    assert due == asked


@pytest.mark.parametrize(("file", "more"), [("b1.done.json", 2), ("b1.halt.json", 2), ("jobs-changed", 0)])
def test_a_file_that_tells_of_an_end_wakes_the_question(clock: FakeClock, tmp_path: Path, file: str, more: int) -> None:
    """A finished block's job ends soon, so it is asked for every five seconds. The driver's word counts once."""
    (tmp_path / file).write_text("of an earlier job")
    questions = Questions("jobs-changed", DRIVEN_SECONDS, clock)
    for _ in range(10):
        clock.advance(1.0)
        assert not questions.due(FILES)
    (tmp_path / file).unlink()
    (tmp_path / file).write_text("new")
    assert questions.due(FILES)
    due = 0
    for _ in range(12):
        clock.advance(1.0)
        due += questions.due(FILES)
    assert due == more
