"""Knowing without mlflow that nothing is left to publish, and noticing when that is no longer true."""

from __future__ import annotations

import shutil
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

from accelsweep.json_documents import sha256_file
from accelsweep.records.layout import SweepFolder
from accelsweep.records.plan import Manifest
from accelsweep.records.run_record import Record
from accelsweep.tracking.publisher import publish
from accelsweep.tracking.sweep_snapshot import (
    Copied,
    remember,
    report_digest,
    run_digests,
    surely_up_to_date,
    up_to_date,
)


def any_record(sweep: SweepFolder) -> Path:
    """Return a record file of the sweep."""
    return sorted(sweep.root.glob("runs/*/record.json"))[0]


def test_a_sweep_that_was_never_published_is_not_up_to_date(sweep: SweepFolder) -> None:
    assert not up_to_date(sweep, "sqlite:///mlflow.db")


def test_a_damaged_state_file_means_publishing_again(sweep: SweepFolder) -> None:
    sweep.published.write_text("{", "utf-8")
    assert not up_to_date(sweep, "sqlite:///mlflow.db")


def test_asking_imports_neither_mlflow_nor_pandas(sweep: SweepFolder) -> None:
    code = (
        "import sys; from pathlib import Path; from accelsweep.records.layout import SweepFolder;"
        "from accelsweep.tracking.sweep_snapshot import up_to_date;"
        f"up_to_date(SweepFolder(Path({str(sweep.home)!r}), {sweep.name!r}));"
        "print([name for name in ('mlflow', 'pandas', 'torch') if name in sys.modules])"
    )
    assert subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout == "[]\n"


def test_a_server_is_asked_for_it_may_stand_on_a_backup_that_is_older_than_the_note(sweep: SweepFolder) -> None:
    records = {path.parent.name: sha256_file(path) for path in sweep.root.glob("runs/*/record.json")}
    digests = run_digests(Manifest.read(sweep.manifest), records)
    copied = Copied(experiment_id="1", active_runs=0, records=digests, report=report_digest(sweep), views=True)
    remember(sweep, "http://mlflow.example", copied)
    assert up_to_date(sweep, "http://mlflow.example")
    assert not surely_up_to_date(sweep, "http://mlflow.example")


@pytest.mark.real
def test_after_publishing_nothing_is_left_until_something_changes(
    copied_with_findings: tuple[SweepFolder, str],
) -> None:
    sweep, uri = copied_with_findings
    assert up_to_date(sweep, uri)
    assert not up_to_date(sweep, "sqlite:///elsewhere.db")
    (sweep.report / "index.html").write_text("two", "utf-8")
    assert not up_to_date(sweep, uri)
    publish(sweep, uri)
    assert up_to_date(sweep, uri)
    record = Record.read(any_record(sweep))
    record.model_copy(update={"attempt": 2}).write(any_record(sweep))
    assert not up_to_date(sweep, uri)
    publish(sweep, uri)
    any_record(sweep).unlink()
    assert not up_to_date(sweep, uri)


@pytest.mark.real
def test_the_store_is_the_judge(copied: tuple[SweepFolder, str], empty_database: Path) -> None:
    sweep, uri = copied
    with closing(sqlite3.connect(sweep.home / "mlflow.db")) as connection, connection:
        connection.execute("update runs set lifecycle_stage = 'deleted' where rowid = (select min(rowid) from runs)")
    assert not up_to_date(sweep, uri), "a run was deleted in the UI"
    publish(sweep, uri)
    assert up_to_date(sweep, uri)
    shutil.copy(empty_database, sweep.home / "mlflow.db")
    assert not up_to_date(sweep, uri), "the database was made anew"
    (sweep.home / "mlflow.db").unlink()
    assert not up_to_date(sweep, uri), "the database is gone"
