"""Whether a copy is complete is known without mlflow, and every change to the folder or the store is noticed."""

from __future__ import annotations

import shutil
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

from accelsweep.files import sha256_file
from accelsweep.records.layout import SweepFolder
from accelsweep.records.plan import Manifest
from accelsweep.records.run_record import Record
from accelsweep.tracking.published_state import (
    PublishedCopy,
    remember_copy,
    run_digests,
    up_to_date,
    verified_up_to_date,
)
from accelsweep.tracking.publisher import publish
from accelsweep.tracking.snapshot import report_digest


def first_record(sweep: SweepFolder) -> Path:
    return sorted(sweep.root.glob("runs/*/record.json"))[0]


def test_a_sweep_that_was_never_published_is_not_up_to_date(sweep: SweepFolder) -> None:
    assert not up_to_date(sweep, "sqlite:///mlflow.db")


def test_a_damaged_state_file_makes_the_copy_incomplete(sweep: SweepFolder) -> None:
    sweep.published.write_text("{", "utf-8")
    assert not up_to_date(sweep, "sqlite:///mlflow.db")


def test_checking_imports_none_of_mlflow_pandas_and_torch(sweep: SweepFolder) -> None:
    code = (
        "import sys; from pathlib import Path; from accelsweep.records.layout import SweepFolder;"
        "from accelsweep.tracking.published_state import up_to_date;"
        f"up_to_date(SweepFolder(Path({str(sweep.home)!r}), {sweep.name!r}));"
        "print([name for name in ('mlflow', 'pandas', 'torch') if name in sys.modules])"
    )
    assert subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout == "[]\n"


def test_a_server_is_never_verified_because_an_old_backup_may_have_been_restored(sweep: SweepFolder) -> None:
    records = {path.parent.name: sha256_file(path) for path in sweep.root.glob("runs/*/record.json")}
    digests = run_digests(Manifest.read(sweep.manifest), records)
    published = PublishedCopy(experiment_id="1", active_runs=0, records=digests, report=report_digest(sweep))
    remember_copy(sweep, "http://mlflow.example", published)
    assert up_to_date(sweep, "http://mlflow.example")
    assert not verified_up_to_date(sweep, "http://mlflow.example")


@pytest.mark.real
def test_a_published_copy_is_up_to_date_until_a_record_or_the_report_changes(
    copied_with_findings: tuple[SweepFolder, str],
) -> None:
    sweep, uri = copied_with_findings
    assert up_to_date(sweep, uri)
    assert not up_to_date(sweep, "sqlite:///elsewhere.db")
    (sweep.report / "index.html").write_text("two", "utf-8")
    assert not up_to_date(sweep, uri)
    publish(sweep, uri)
    assert up_to_date(sweep, uri)
    record = Record.read(first_record(sweep))
    record.model_copy(update={"attempt": 2}).write(first_record(sweep))
    assert not up_to_date(sweep, uri)
    publish(sweep, uri)
    first_record(sweep).unlink()
    assert not up_to_date(sweep, uri)


@pytest.mark.real
def test_runs_that_are_missing_from_a_sqlite_store_are_noticed(
    copied: tuple[SweepFolder, str], empty_database: Path
) -> None:
    sweep, uri = copied
    with closing(sqlite3.connect(sweep.home / "mlflow.db")) as connection, connection:
        connection.execute("update runs set lifecycle_stage = 'deleted' where rowid = (select min(rowid) from runs)")
    assert not up_to_date(sweep, uri), "a run was deleted in the UI"
    publish(sweep, uri)
    assert up_to_date(sweep, uri)
    shutil.copy(empty_database, sweep.home / "mlflow.db")
    assert not up_to_date(sweep, uri), "the database was replaced by an empty one"
    (sweep.home / "mlflow.db").unlink()
    assert not up_to_date(sweep, uri), "the database is gone"
