"""Stale temporary files are removed, and unexpected files set aside; nothing else is ever touched."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from example_sweep import build_example_sweep
from tiny_executor import TinyBlock

from accelsweep.analysis.analyse_sweep import analyse_folder
from accelsweep.analysis.collect import collect
from accelsweep.cli.runs import print_runs
from accelsweep.cli.status import print_status
from accelsweep.driver.sweep_lock import lock_sweep
from accelsweep.errors import DamagedFile, InputError
from accelsweep.executor.result_reuse import audit
from accelsweep.files import read_regular
from accelsweep.records.cleanup import STALE_SECONDS, refuse_obstacles, remove_stale_files, set_unexpected_files_aside
from accelsweep.records.file_lock import disk_time
from accelsweep.records.layout import SweepFolder
from accelsweep.results import Outcome
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
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> SweepFolder:
    monkeypatch.setenv("ACCELSWEEP_LEASES", str(tmp_path / "leases"))
    return build_example_sweep(tmp_path)


def age(path: Path, seconds: float = STALE_SECONDS + 60) -> Path:
    """Backdate the modification time of a file or folder."""
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
def test_files_left_by_a_kill_are_removed_once_they_are_stale(folder: SweepFolder, what: str) -> None:
    place = next(folder.root.glob("runs/*"))
    left = killed_while_writing(folder, what, place)
    assert remove_stale_files(folder) == []
    age(left)
    assert remove_stale_files(folder) == [left]
    assert not left.exists()


def test_partial_steps_and_reports_are_removed_by_the_audit_before_every_run(folder: SweepFolder) -> None:
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


def test_a_killed_import_and_a_half_written_lock_are_removed(folder: SweepFolder) -> None:
    unpacked = folder.home / ".import.abc_1234.part"
    (unpacked / "sweeps").mkdir(parents=True)
    lock = folder.root / "..driver.lock.json.00865e23.part.abc_1234.part"
    lock.touch()
    for left in (unpacked, lock):
        age(left)
    assert set(remove_stale_files(folder)) == {unpacked, lock}


def test_files_that_are_not_ours_are_left_alone_however_old(folder: SweepFolder) -> None:
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


def test_age_goes_by_the_file_systems_clock_and_not_by_the_machines(
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
def test_stale_folders_of_a_killed_database_creation_are_removed(tmp_path: Path) -> None:
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


# Folders, pipes and devices in the places of files.

KINDS: dict[str, Callable[[Path], None]] = {
    "folder": lambda path: (path / "inside").mkdir(parents=True),
    "pipe": os.mkfifo,
    "device": lambda path: path.symlink_to("/dev/zero"),
}


def replaced(path: Path, kind: str) -> Path:
    path.unlink(missing_ok=True)
    KINDS[kind](path)
    return path


@pytest.mark.heavy
@pytest.mark.parametrize("kind", KINDS)
def test_the_driver_and_readers_of_a_sweep_continue(folder: SweepFolder, kind: str, capsys) -> None:
    run = next(folder.root.glob("runs/*/record.json")).parent.name
    paths = [folder.root / "driver.lock.json", folder.findings, folder.records, folder.record(run)]
    for path in paths:
        replaced(path, kind)
    print_status(folder.home, folder.name)
    print_runs(folder.home, folder.name, "not_run")
    assert "its record is damaged (not a regular file" in capsys.readouterr().out
    with lock_sweep(folder):
        analyse_folder(folder).write(folder.findings)
    for path in paths:
        assert len(list(path.parent.glob(f"{path.name}.damaged-*"))) == 1, path
        assert not path.exists() or path.is_file()


@pytest.mark.heavy
@pytest.mark.parametrize("kind", KINDS)
def test_a_block_with_unexpected_files_is_measured_again(tiny_block: TinyBlock, kind: str) -> None:
    tiny_block.plan("measured:1", "measured:2")
    folder, block = tiny_block.folder, tiny_block.name
    assert tiny_block.run()[0] == 0
    first, second = tiny_block.runs()
    for path in (
        folder.record(first),
        folder.steps(second),
        folder.done(block),
        folder.lock(block),
        folder.halt(block),
    ):
        replaced(path, kind)
    assert audit(folder).reopened == (block,)
    code, output = tiny_block.run()
    assert code == 0, output
    assert [tiny_block.record(number).outcome for number in range(2)] == [Outcome.measured] * 2
    assert folder.halts() == []


@pytest.mark.heavy
@pytest.mark.parametrize("kind", KINDS)
def test_unexpected_files_are_set_aside_before_other_programs_write(folder: SweepFolder, kind: str) -> None:
    logs = folder.root / "logs"
    logs.mkdir()
    notes = folder.home / ".snakemake" / "metadata"
    notes.mkdir(parents=True)
    (notes / "@of-a-long-name").mkdir()
    paths = [folder.root / "published.done", logs / "snakemake.log", folder.stop, notes / "cmVwb3J0"]
    for path in paths:
        replaced(path, kind)
    kept = folder.root / "runs" / "mine"
    kept.mkdir()
    assert {damaged.path for damaged in set_unexpected_files_aside(folder)} == set(paths)
    assert not any(os.path.lexists(path) for path in paths)
    assert kept.is_dir()
    assert (notes / "@of-a-long-name").is_dir()
    assert set_unexpected_files_aside(folder) == []


@pytest.mark.heavy
def test_a_file_in_place_of_a_runs_folder_is_set_aside(folder: SweepFolder) -> None:
    run = next(folder.root.glob("runs/*/record.json")).parent
    run.rename(folder.root / "elsewhere")
    run.write_text("a file")
    with pytest.raises(DamagedFile, match="not a folder"):
        read_regular(run / "record.json")
    (row,) = [row for row in collect(folder) if row.run == run.name]
    assert row.outcome is Outcome.not_run
    assert run.with_name(f"{run.name}.damaged-1").read_text() == "a file"


@pytest.mark.heavy
@pytest.mark.parametrize(
    "place", ["sweeps", "sweeps/tiny", "sweeps/tiny/runs", "sweeps/tiny/logs", "reports", "reports/tiny", ".snakemake"]
)
def test_a_file_or_a_dangling_link_in_place_of_a_folder_is_refused_and_left_alone(
    tmp_path: Path, place: str, last_line: Callable[[str, str], None]
) -> None:
    path = tmp_path / place
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("mine")
    with pytest.raises(InputError) as caught:
        refuse_obstacles(SweepFolder(tmp_path, "tiny"))
    assert str(caught.value) == f"{path} is a file, and a folder is needed there. Move it away: mv {path} {path}.old"
    last_line(f"`{place}` is a file", str(caught.value).replace(str(tmp_path), "."))
    assert path.read_text() == "mine"
    path.unlink()
    path.symlink_to("/nowhere/at/all")
    with pytest.raises(InputError, match="a link to /nowhere/at/all, which is not a folder"):
        refuse_obstacles(SweepFolder(tmp_path, "tiny"))
    path.unlink()
    path.symlink_to(tmp_path / "elsewhere")
    (tmp_path / "elsewhere").mkdir()
    refuse_obstacles(SweepFolder(tmp_path, "tiny"))


@pytest.mark.parametrize("levels", [3, 8])
def test_a_path_too_long_for_sqlite_is_refused_with_its_length(levels: int) -> None:
    deep = Path("/", *["x" * 200] * levels)
    with pytest.raises(InputError, match=rf"a path of {201 * levels + 18} bytes, and SQLite allows 512"):
        refuse_obstacles(SweepFolder(deep, "tiny"))
    refuse_obstacles(SweepFolder(Path("/", *["x" * 200] * 2), "tiny"))
