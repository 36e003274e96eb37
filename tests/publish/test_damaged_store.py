"""A damaged SQLite store is named at once with what to do. It is the user's file, and is never touched."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from accelsweep.cli.sweeps import publish_now
from accelsweep.records.layout import SweepFolder
from accelsweep.tracking.publisher import publish
from accelsweep.tracking.store import StoreDamaged
from accelsweep.tracking.sweep_snapshot import up_to_date

pytestmark = pytest.mark.real


def cut_short(path: Path) -> None:
    os.truncate(path, path.stat().st_size // 2)


def no_database(path: Path) -> None:
    path.write_bytes(b"x" * 100_000)


def fifo(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


@pytest.mark.parametrize("damage", [cut_short, no_database, fifo])
def test_it_is_named_at_once_and_left_as_it_is(
    example_sweep: SweepFolder, empty_database: Path, damage: Callable[[Path], None]
) -> None:
    store = example_sweep.home / "mlflow.db"
    shutil.copy(empty_database, store)
    damage(store)
    before = store.lstat()
    with pytest.raises(StoreDamaged, match="accelsweep publish example --anew sets it aside"):
        publish(example_sweep, patience_seconds=600.0)
    assert store.lstat().st_mtime_ns == before.st_mtime_ns
    assert not up_to_date(example_sweep)
    assert "runs in MLflow" in publish_now(example_sweep.home, "example", None, anew=True)
    assert store.with_name("mlflow.db.1").lstat().st_mtime_ns == before.st_mtime_ns
