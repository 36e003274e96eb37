"""A finished sweep is told from its files alone; whatever is missing or changed in it, Snakemake is asked again."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from home import Home
from shared_fork_server import beside_the_server

from accelsweep.driver import snakefile_functions
from accelsweep.driver.up_to_date import is_up_to_date, mark_up_to_date
from accelsweep.records.layout import SweepFolder
from accelsweep.tracking.published_state import PublishedState, remember_copy
from accelsweep.tracking.store_uri import resolve_uri

pytestmark = pytest.mark.real


@pytest.fixture(scope="module")
def kept(finished: tuple[Home, object], leases: str, tmp_path_factory: pytest.TempPathFactory) -> tuple[Home, Path]:
    """The finished sweep in another home, as if it had been published there, and a copy of all its files."""
    home = Home(tmp_path_factory.mktemp("home"), ACCELSWEEP_LEASES=leases, **beside_the_server())
    shutil.copytree(finished[0].path, home.path, dirs_exist_ok=True)
    folder = SweepFolder(home.path, "tiny")
    (copied,) = PublishedState.read(folder.published).stores.values()
    remember_copy(folder, resolve_uri(home.path, None), copied)
    copy = tmp_path_factory.mktemp("copy")
    shutil.copytree(home.path, copy, dirs_exist_ok=True)
    return home, copy


@pytest.fixture
def home(kept: tuple[Home, Path]) -> Home:
    """The finished sweep as it was."""
    home, copy = kept
    shutil.rmtree(home.path)
    shutil.copytree(copy, home.path)
    assert is_up_to_date(SweepFolder(home.path, "tiny"))
    return home


def test_a_finished_sweep_stands_and_its_command_asks_no_snakemake_and_says_the_same(home: Home) -> None:
    folder = SweepFolder(home.path, "tiny")
    folder.snakemake_log.unlink()
    before = home.files()
    result = home.accelsweep("run", "experiment=tiny")
    assert result.returncode == 0, result.stdout
    assert not folder.snakemake_log.exists()
    assert "report: " in result.stdout
    changed = {name for name, stamp in home.files().items() if before.get(name) != stamp}
    assert changed <= {"sweeps/tiny/completed.json"}


def first(pattern: str) -> Callable[[Path], Path]:
    return lambda home: sorted(home.glob(pattern))[0]


def test_snakemake_has_nothing_to_do_for_a_finished_sweep(continued: Home) -> None:
    """Not even where the sweep lies elsewhere, and other code of the same content asks."""
    result = continued.snakemake("--dry-run", "--config", "sweep=sweeps/tiny", "--", "results")
    assert result.returncode == 0, result.stdout
    assert "Nothing to be done" in result.stdout


@pytest.mark.long  # the test below sees each loss, Snakemake makes what is missing; only here one command does both
@pytest.mark.parametrize("lost", ["sweeps/tiny/findings.json", "reports/tiny/speedup.svg"])
def test_what_is_missing_while_the_page_stands_is_made_again_and_so_is_what_was_altered(home: Home, lost: str) -> None:
    table, gone = home.path / "reports" / "tiny" / "runs.csv", home.path / lost
    before = table.read_bytes(), gone.read_bytes()
    table.write_bytes(before[0][:-9])
    gone.unlink()
    result = home.accelsweep("run", "experiment=tiny")
    assert result.returncode == 0, result.stdout
    assert (table.read_bytes(), gone.read_bytes()) == before


LOSSES = {
    "a figure": first("reports/tiny/*.svg"),
    "the page": first("reports/tiny/index.html"),
    "the findings": first("sweeps/tiny/findings.json"),
    "a record": first("sweeps/tiny/runs/*/record.json"),
    "the steps of a run": first("sweeps/tiny/runs/*/steps.parquet"),
    "a done file": first("sweeps/tiny/blocks/*.done.json"),
    "the database": first("mlflow.db"),
    "the note": first("sweeps/tiny/completed.json"),
}


@pytest.mark.parametrize("loss", LOSSES)
def test_a_sweep_that_lost_something_does_not_stand(home: Home, loss: str) -> None:
    LOSSES[loss](home.path).unlink()
    assert not is_up_to_date(SweepFolder(home.path, "tiny"))


@pytest.mark.parametrize("change", ["the page", "the findings", "a record", "a done file"])
def test_a_sweep_in_which_something_changed_does_not_stand(home: Home, change: str) -> None:
    path = LOSSES[change](home.path)
    path.write_bytes(path.read_bytes() + b"\n")
    assert not is_up_to_date(SweepFolder(home.path, "tiny"))


@pytest.mark.parametrize("package", ["json_documents.py", "executor", "planning", "analysis", "report"])
def test_a_sweep_that_was_made_by_other_code_does_not_stand(
    home: Home, package: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = snakefile_functions._file_digests
    monkeypatch.setattr(
        snakefile_functions, "_file_digests", lambda folder: [] if folder.name == package else source(folder)
    )
    assert not is_up_to_date(SweepFolder(home.path, "tiny"))


def test_nothing_is_noted_of_a_sweep_without_a_report(home: Home) -> None:
    folder = SweepFolder(home.path, "tiny")
    folder.completed_state.unlink()
    (folder.report / "index.html").unlink()
    mark_up_to_date(folder)
    assert not folder.completed_state.exists()
