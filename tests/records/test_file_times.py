"""No file of a sweep is left in the future, where Snakemake would reject its outputs."""

from __future__ import annotations

import os
import re
import time
from pathlib import Path

import pytest
from example_sweep import build_example_sweep

from accelsweep.records.file_times import clamp_future_times, clamp_sweep_times, clock_warnings
from accelsweep.records.layout import SweepFolder

DAYS = 86_400.0


@pytest.fixture
def folder(tmp_path: Path) -> SweepFolder:
    return build_example_sweep(tmp_path)


def ahead(path: Path, seconds: float) -> Path:
    stamp = time.time() + seconds
    os.utime(path, (stamp, stamp))
    return path


def test_files_from_the_future_are_stamped_now_and_older_ones_left_alone(folder: SweepFolder) -> None:
    first, second, *_ = sorted(folder.root.glob("blocks/b*.json"))
    ahead(first, 3 * DAYS)
    old = ahead(second, -DAYS).stat().st_mtime_ns
    report = folder.report / "index.html"
    report.parent.mkdir(parents=True)
    report.touch()
    for path in (folder.manifest, report):
        ahead(path, DAYS)
    found = clamp_sweep_times(folder)
    assert 3 * DAYS - 60 < found < 3 * DAYS + 60
    assert all(path.stat().st_mtime <= time.time() for path in (first, folder.manifest, report))
    assert second.stat().st_mtime_ns == old
    (told,) = clock_warnings(folder, found)
    assert re.search(r"files in sweeps/example were stamped (2 days, 23:59|3 days, 0:00):\d\d in the future", told)


def test_nothing_is_reported_if_the_clocks_agree(folder: SweepFolder) -> None:
    assert list(clock_warnings(folder, clamp_sweep_times(folder))) == []


def test_a_disk_clock_that_differs_from_the_machines_is_reported(folder: SweepFolder, monkeypatch) -> None:
    slow = time.time() - 600
    monkeypatch.setattr("accelsweep.records.file_times.disk_time", lambda _: slow)
    (told,) = clock_warnings(folder, 0.0)
    assert told == "warning: the clock of the file system of sweeps/example is 0:10:00 behind this machine's"
    block = next(folder.root.glob("blocks/b*.json"))
    assert clamp_future_times([block], folder.root) > 0, "later than the disk would stamp its outputs"
    assert block.stat().st_mtime == pytest.approx(slow)
