"""Half-written files that a kill left are swept up once they are old; nothing else is ever removed."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
from example_sweep import build_example_sweep

from accelsweep.executor.result_reuse import audit
from accelsweep.records.cleanup import STALE_SECONDS, remove_stale_files
from accelsweep.records.file_lock import disk_time
from accelsweep.records.layout import SweepFolder
from accelsweep.tracking.store import create_database

KILLED = """
import os, signal, sys
from pathlib import Path
os.{step} = lambda *_, **__: os.kill(os.getpid(), signal.SIGKILL)
{write}
"""
WRITES = {
    "document": "from accelsweep.records.plan import Done\n"
    "Done(block='b', records={}).write(Path(sys.argv[1], 'b.done.json'))",
    "table": "from accelsweep.files import write_bytes_atomically as write\n"
    "write(Path(sys.argv[1], 'records.parquet'), b'PAR1')",
}


@pytest.fixture
def folder(tmp_path: Path) -> SweepFolder:
    return build_example_sweep(tmp_path)


def age(path: Path, seconds: float = STALE_SECONDS + 60) -> Path:
    """Make a file or folder look as if it had been changed so long ago."""
    then = path.lstat().st_mtime - seconds
    os.utime(path, (then, then), follow_symlinks=False)
    return path


def killed_while_writing(folder: SweepFolder, what: str, place: Path) -> Path:
    before = set(place.iterdir())
    code = KILLED.format(step="fsync", write=WRITES[what])
    subprocess.run([sys.executable, "-c", code, str(place)], check=False)
    (left,) = set(place.iterdir()) - before
    return left


@pytest.mark.parametrize("what", WRITES)
def test_what_a_real_kill_left_is_swept_up_when_it_is_old_and_not_before(folder: SweepFolder, what: str) -> None:
    place = next(folder.root.glob("runs/*"))
    left = killed_while_writing(folder, what, place)
    assert remove_stale_files(folder) == []
    age(left)
    assert remove_stale_files(folder) == [left]
    assert not left.exists()


def test_steps_and_half_built_reports_are_swept_up_by_the_audit_before_every_run(folder: SweepFolder) -> None:
    steps = next(folder.root.glob("runs/*")) / "attempts" / "1" / ".rank-0.steps.parquet.part"
    steps.parent.mkdir(parents=True)
    steps.write_bytes(b"PAR1")
    report = folder.report.parent / f".{folder.name}.abc_1234.part"
    report.mkdir(parents=True)
    (report / "index.html").write_text("half a page")
    for left in (steps, report):
        age(left)
    runs = set(folder.root.glob("runs/**/*"))
    audit(folder)
    assert set(folder.root.glob("runs/**/*")) == runs - {steps}
    assert not report.exists()


def test_what_a_killed_import_unpacked_and_a_hold_that_was_being_written_are_swept_up(folder: SweepFolder) -> None:
    unpacked = folder.home / ".import.abc_1234.part"
    (unpacked / "sweeps").mkdir(parents=True)
    hold = folder.root / "..head.claim.json.00865e23.part.abc_1234.part"
    hold.touch()
    for left in (unpacked, hold):
        age(left)
    assert set(remove_stale_files(folder)) == {unpacked, hold}


def test_files_of_others_are_left_alone_however_old(folder: SweepFolder) -> None:
    run = next(folder.root.glob("runs/*"))
    names = ("notes.part", ".record.json.part", ".record.json.ABCDEFGH.part", "record.json.abcd1234.part", ".mine.part")
    files = [run / name for name in names]
    for path in files:
        path.write_text("mine")
    link, target = run / ".record.json.linked00.part", folder.home / "target"
    target.write_text("mine")
    link.symlink_to(target)
    another = folder.report.parent / f".{folder.name}-2.abcd1234.part"
    another.mkdir(parents=True)
    for path in (*files, link, another):
        age(path)
    assert remove_stale_files(folder) == []
    assert all(path.exists() for path in (*files, link, another, target))


@pytest.mark.skipif(os.getuid() != 0, reason="only root can give files away")
def test_another_users_file_is_left_alone(folder: SweepFolder) -> None:
    path = folder.root / ".manifest.json.abcd1234.part"
    path.write_text("theirs")
    os.chown(path, 12345, -1)
    age(path)
    assert remove_stale_files(folder) == []


def test_age_is_told_by_the_file_systems_clock_and_not_by_ours(
    folder: SweepFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = folder.root / ".manifest.json.abcd1234.part"
    path.write_text("being written on another machine")
    monkeypatch.setattr(time, "time", lambda: 4e9)
    assert remove_stale_files(folder) == []
    now = disk_time(folder.root)
    assert now is not None
    assert abs(now - path.stat().st_mtime) < 60
    assert [item.name for item in folder.root.glob(".clock*")] == []


@pytest.mark.heavy
def test_folders_in_which_a_killed_publisher_made_its_database_are_swept_up_when_old(tmp_path: Path) -> None:
    database = tmp_path / "mlflow.db"
    old, young, foreign, other = (
        tmp_path / name
        for name in (".mlflow.db.ab12_xyz", ".mlflow.db.cd34_xyz", ".mlflow.db.ef56_xyz", ".mlflow.db.bak")
    )
    for folder in (old, young, foreign, other):
        folder.mkdir()
        (folder / "new.db-journal").touch()
    (foreign / "thesis.txt").touch()
    for folder in (old, foreign, other):
        age(folder)
    database.touch()
    create_database(f"sqlite:///{database}", tmp_path)
    assert [folder.exists() for folder in (old, young, foreign, other)] == [False, True, True, True]
