"""A rank's heartbeat, read through a file."""

from __future__ import annotations

from pathlib import Path

from accelsweep.heartbeat import Heartbeat, HeartbeatReader


def test_there_are_no_steps_before_the_first_heartbeat(tmp_path: Path) -> None:
    reader = HeartbeatReader(tmp_path / "heartbeat-0")
    assert reader.steps == 0
    (tmp_path / "heartbeat-0").touch()
    assert reader.steps == 0


def test_steps_are_counted_until_the_rank_pauses(tmp_path: Path) -> None:
    reader, heartbeat = HeartbeatReader(tmp_path / "heartbeat-0"), Heartbeat(tmp_path / "heartbeat-0")
    assert reader.steps == 0
    heartbeat.step()
    heartbeat.step()
    assert reader.steps == 2
    heartbeat.step(pauses=True)
    assert reader.steps == 0
    heartbeat.step()
    heartbeat.pause()
    assert reader.steps == 0


def test_a_later_phase_of_the_rank_uses_the_same_file(tmp_path: Path) -> None:
    reader, first = HeartbeatReader(tmp_path / "heartbeat-0"), Heartbeat(tmp_path / "heartbeat-0")
    first.step()
    assert reader.steps == 1
    second = Heartbeat(tmp_path / "heartbeat-0")
    assert reader.steps == 0
    second.step()
    assert reader.steps == 1


def test_a_heartbeat_without_a_path_goes_nowhere() -> None:
    Heartbeat().step()
