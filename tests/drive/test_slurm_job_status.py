"""When Snakemake asks Slurm about its jobs: when a file tells of an end, and seldom otherwise."""

from __future__ import annotations

from pathlib import Path

import pytest
from fake_clock import FakeClock

from accelsweep.driver.slurm_job_status import ALONE_SECONDS, DRIVEN_SECONDS, Questions

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
