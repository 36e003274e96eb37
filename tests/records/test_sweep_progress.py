"""The progress of a run while a rank trains."""

from __future__ import annotations

import pytest

from accelsweep.heartbeat import Heartbeat, StepCount, read_progress
from accelsweep.records.layout import SweepFolder
from accelsweep.records.run_files import RunFolder
from accelsweep.records.sweep_progress import progress_signature


def test_a_step_count_is_visible_at_once(tmp_path):
    progress = StepCount(tmp_path / "progress")
    assert read_progress(tmp_path / "progress") == 0
    progress(12345678901)
    assert read_progress(tmp_path / "progress") == 12345678901


def test_a_step_a_phase_or_a_line_of_the_log_changes_the_signature(tmp_path):
    folder = SweepFolder(tmp_path, "mine")
    place = RunFolder(folder.run("run"), "run")
    seen = [progress_signature(folder, "run")]

    def moved() -> bool:
        seen.append(progress_signature(folder, "run"))
        return seen[-1] != seen[-2]

    attempt = place.attempt(place.begin("host", "2026-01-01T00:00:00+00:00"))
    assert moved()
    steps, heartbeat = StepCount(attempt / "progress"), Heartbeat(attempt / "heartbeat-0")
    assert not moved()
    steps(1)
    assert moved()
    heartbeat.step()
    assert moved()
    (attempt / "run.log").write_text("val_accuracy 0.8\n")
    assert moved()
    assert not moved()


@pytest.mark.parametrize("content", [None, b"", b"123"])
def test_a_missing_or_partial_file_is_not_a_count(tmp_path, content):
    if content is not None:
        (tmp_path / "progress").write_bytes(content)
    assert read_progress(tmp_path / "progress") is None
