"""A folder, a device or a pipe in the place of a file of ours is set aside like any damaged file, and never read."""

from __future__ import annotations

import os
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
from accelsweep.records.cleanup import refuse_obstacles, set_unexpected_files_aside
from accelsweep.records.layout import SweepFolder
from accelsweep.results import Outcome

pytestmark = pytest.mark.heavy

KINDS: dict[str, Callable[[Path], None]] = {
    "folder": lambda path: (path / "inside").mkdir(parents=True),
    "pipe": os.mkfifo,
    "device": lambda path: path.symlink_to("/dev/zero"),
}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> SweepFolder:
    monkeypatch.setenv("ACCELSWEEP_LEASES", str(tmp_path / "leases"))
    return build_example_sweep(tmp_path)


def replaced(path: Path, kind: str) -> Path:
    path.unlink(missing_ok=True)
    KINDS[kind](path)
    return path


@pytest.mark.parametrize("kind", KINDS)
def test_the_head_and_the_readers_of_a_sweep_go_on(folder: SweepFolder, kind: str, capsys) -> None:
    run = next(folder.root.glob("runs/*/record.json")).parent.name
    paths = [folder.root / "head.claim.json", folder.findings, folder.records, folder.record(run)]
    for path in paths:
        replaced(path, kind)
    print_status(folder.home, folder.name)
    print_runs(folder.home, folder.name, "not_run")
    assert "its record is damaged (it is not a file" in capsys.readouterr().out
    with lock_sweep(folder):
        analyse_folder(folder).write(folder.findings)
    for path in paths:
        assert len(list(path.parent.glob(f"{path.name}.damaged-*"))) == 1, path
        assert not path.exists() or path.is_file()


@pytest.mark.parametrize("kind", KINDS)
def test_a_block_with_strangers_in_the_places_of_its_files_is_measured_again(tiny_block: TinyBlock, kind: str) -> None:
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


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_in_the_way_of_files_that_others_write_is_set_aside_first(folder: SweepFolder, kind: str) -> None:
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


def test_a_file_in_the_place_of_a_runs_folder_is_set_aside(folder: SweepFolder) -> None:
    run = next(folder.root.glob("runs/*/record.json")).parent
    run.rename(folder.root / "elsewhere")
    run.write_text("a file")
    with pytest.raises(DamagedFile, match="it is not a folder"):
        read_regular(run / "record.json")
    (row,) = [row for row in collect(folder) if row.run == run.name]
    assert row.outcome is Outcome.not_run
    assert run.with_name(f"{run.name}.damaged-1").read_text() == "a file"


@pytest.mark.parametrize(
    "place", ["sweeps", "sweeps/tiny", "sweeps/tiny/runs", "sweeps/tiny/logs", "reports", "reports/tiny", ".snakemake"]
)
def test_a_file_or_a_link_to_nothing_in_the_place_of_a_folder_is_refused_and_left_alone(
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
def test_a_path_that_sqlite_cannot_open_is_refused_with_its_length(levels: int) -> None:
    deep = Path("/", *["x" * 200] * levels)
    with pytest.raises(InputError, match=rf"a path of {201 * levels + 18} bytes, and SQLite takes 512"):
        refuse_obstacles(SweepFolder(deep, "tiny"))
    refuse_obstacles(SweepFolder(Path("/", *["x" * 200] * 2), "tiny"))
