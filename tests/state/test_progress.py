"""The step count that a supervisor reads while a rank trains."""

from __future__ import annotations

import pytest

from accelsweep.state.progress import StepCount, read_progress


def test_what_is_told_is_read_at_once(tmp_path):
    progress = StepCount(tmp_path / "progress")
    assert read_progress(tmp_path / "progress") == 0
    progress(12345678901)
    assert read_progress(tmp_path / "progress") == 12345678901


@pytest.mark.parametrize("content", [None, b"", b"123"])
def test_no_file_or_half_a_file_is_not_a_count(tmp_path, content):
    if content is not None:
        (tmp_path / "progress").write_bytes(content)
    assert read_progress(tmp_path / "progress") is None
