"""The starter is written completely or not at all, and it runs as it is."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
from polling import PATIENCE_SECONDS

from accelsweep.cli.sweeps import STARTER_FILES, write_starter
from accelsweep.cli.typer_app import app, exit_code
from accelsweep.errors import InputError
from accelsweep.installation import shipped_root
from accelsweep.planning.plan import make_plan


def test_exactly_the_files_of_the_starter_are_written(tmp_path):
    write_starter(tmp_path / "new" / "place")
    written = {
        path.relative_to(tmp_path / "new" / "place").as_posix() for path in tmp_path.rglob("*") if path.is_file()
    }
    assert written == set(STARTER_FILES)
    shipped = (path for path in (shipped_root() / "starter").rglob("*") if path.is_file() and path.suffix != ".pyc")
    assert {path.relative_to(shipped_root() / "starter").as_posix() for path in shipped} == set(STARTER_FILES)


@pytest.mark.parametrize("taken", STARTER_FILES)
def test_if_a_file_exists_nothing_is_written(tmp_path, taken):
    (tmp_path / taken).parent.mkdir(parents=True, exist_ok=True)
    (tmp_path / taken).write_text("mine")
    with pytest.raises(InputError, match=rf"{taken} in .* would be overwritten, so nothing was written"):
        write_starter(tmp_path)
    assert (tmp_path / taken).read_text() == "mine"
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == [tmp_path / taken]


def test_a_file_in_place_of_the_folder_is_left_alone(tmp_path):
    (tmp_path / "file").write_text("mine")
    with pytest.raises(InputError, match="would be overwritten"):
        write_starter(tmp_path / "file")


def test_the_command_prints_the_next_step_or_exits_with_2(tmp_path, monkeypatch, capsys):
    first = subprocess.run(
        [sys.executable, "-m", "accelsweep", "init", "my place"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
    )
    assert first.stdout.splitlines()[-1] == "now: cd 'my place' && accelsweep run experiment=mine"
    monkeypatch.chdir(tmp_path / "my place")
    monkeypatch.setattr(sys, "argv", ["accelsweep", "init"])
    assert exit_code(app) == 2
    assert "try: accelsweep init ANOTHER_FOLDER" in capsys.readouterr().err


def test_the_starter_can_be_planned_as_it_is_written(tmp_path):
    write_starter(tmp_path)
    plan = make_plan(tmp_path, ["experiment=mine"])
    assert len(plan.manifest.settings) == 4
    assert [setting.unsupported for setting in plan.manifest.settings] == [None] * 4


@pytest.mark.long  # the test above plans what is written; only here it is measured
@pytest.mark.real
def test_the_starter_runs_to_a_report_and_its_own_test_passes(tmp_path):
    """Shortened: one repeat and short windows; everything else is as it is written."""
    write_starter(tmp_path)
    tested = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"],
        cwd=tmp_path,
        check=False,
        capture_output=True,
        text=True,
    )
    assert tested.returncode == 0, tested.stdout
    short = ["repeats=1", "measure.min_seconds=0.1", "measure.min_steps=10", "measure.quality_samples=512", "threads=1"]
    done = subprocess.run(
        [sys.executable, "-m", "accelsweep", "run", "experiment=mine", *short],
        cwd=tmp_path,
        env={**os.environ, "ACCELSWEEP_LEASES": str(tmp_path / "leases")},
        check=False,
        capture_output=True,
        text=True,
        timeout=PATIENCE_SECONDS,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "width=256" in done.stdout
    assert "val_accuracy" in done.stdout
    assert (tmp_path / "reports" / "mine" / "index.html").exists()
