"""However a sweep ends, the last line that its user reads says what kept runs from being measured."""

from __future__ import annotations

import pytest
from home import Home

pytestmark = pytest.mark.real


def test_a_disk_with_too_little_room_is_told_in_the_last_line_and_in_the_report(home: Home) -> None:
    result = home.accelsweep("run", "experiment=tiny", "limits.free_disk_bytes=1000000000000000000")
    assert result.returncode == 1, result.stdout
    last = result.stdout.splitlines()[-1]
    assert last.startswith("not_run: 4 runs: the disk has "), result.stdout
    assert "MB free, limits.free_disk_bytes asks for 1000000000000 MB; make room" in last
    report = (home.path / "reports/tiny/report.md").read_text().replace("\\", "")
    assert "limits.free_disk_bytes asks for 1000000000000 MB" in report
    mended = home.accelsweep("run", "experiment=tiny")
    assert mended.returncode == 0, mended.stdout
    assert "not_run" not in mended.stdout
