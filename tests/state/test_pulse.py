"""A rank's signs of life, as its supervisor hears them through a file."""

from __future__ import annotations

from pathlib import Path

from accelsweep.records.sweep_progress import Heard, Pulse


def test_nothing_is_heard_before_the_first_sign(tmp_path: Path) -> None:
    heard = Heard(tmp_path / "pulse-0")
    assert heard.steps == 0
    (tmp_path / "pulse-0").touch()
    assert heard.steps == 0


def test_steps_are_heard_until_the_rank_rests(tmp_path: Path) -> None:
    heard, pulse = Heard(tmp_path / "pulse-0"), Pulse(tmp_path / "pulse-0")
    assert heard.steps == 0
    pulse.beat()
    pulse.beat()
    assert heard.steps == 2
    pulse.beat(rests=True)
    assert heard.steps == 0
    pulse.beat()
    pulse.rest()
    assert heard.steps == 0


def test_a_later_phase_of_the_rank_is_heard_through_the_same_file(tmp_path: Path) -> None:
    heard, first = Heard(tmp_path / "pulse-0"), Pulse(tmp_path / "pulse-0")
    first.beat()
    assert heard.steps == 1
    second = Pulse(tmp_path / "pulse-0")
    assert heard.steps == 0
    second.beat()
    assert heard.steps == 1


def test_without_a_path_nobody_hears_it() -> None:
    Pulse().beat()
