"""What is no file is not copied: MLflow would wait for ever at a FIFO, and fill the disk from a device."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from accelsweep.records.layout import SweepFolder
from accelsweep.tracking.publisher import publish

pytestmark = [pytest.mark.real, pytest.mark.timeout(300)]


def test_a_log_or_a_picture_that_is_a_pipe_or_a_device_is_left_out(
    example_sweep: SweepFolder, empty_database: Path
) -> None:
    shutil.copy(empty_database, example_sweep.home / "mlflow.db")
    log = next(example_sweep.root.glob("runs/*/record.json")).with_name("run.log")
    log.unlink(missing_ok=True)
    os.mkfifo(log)
    example_sweep.report.mkdir(parents=True, exist_ok=True)
    (example_sweep.report / "index.html").write_text("a page")
    os.mkfifo(example_sweep.report / "speedup.svg")
    assert publish(example_sweep).finished > 0
    kept = {path.name for path in (example_sweep.home / "mlartifacts").rglob("report/*")}
    assert kept == {"index.html"}
