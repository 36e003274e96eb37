"""A rank's signs of life, as its supervisor hears them through a file."""

from __future__ import annotations

from pathlib import Path

from accelsweep.heartbeat import Heartbeat, HeartbeatReader


def test_nothing_is_heard_before_the_first_sign(tmp_path: Path) -> None:
    heard = HeartbeatReader(tmp_path / "heartbeat-0")
    assert heard.steps == 0
    (tmp_path / "heartbeat-0").touch()
    assert heard.steps == 0


def test_steps_are_heard_until_the_rank_rests(tmp_path: Path) -> None:
    heard, heartbeat = HeartbeatReader(tmp_path / "heartbeat-0"), Heartbeat(tmp_path / "heartbeat-0")
    assert heard.steps == 0
    heartbeat.step()
    heartbeat.step()
    assert heard.steps == 2
    heartbeat.step(pauses=True)
    assert heard.steps == 0
    heartbeat.step()
    heartbeat.pause()
    assert heard.steps == 0


def test_a_later_phase_of_the_rank_is_heard_through_the_same_file(tmp_path: Path) -> None:
    heard, first = HeartbeatReader(tmp_path / "heartbeat-0"), Heartbeat(tmp_path / "heartbeat-0")
    first.step()
    assert heard.steps == 1
    second = Heartbeat(tmp_path / "heartbeat-0")
    assert heard.steps == 0
    second.step()
    assert heard.steps == 1


def test_without_a_path_nobody_hears_it() -> None:
    Heartbeat().step()
