"""Stores that refuse us, for whatever reason: one sentence at once, with the reason and what mends it."""

from __future__ import annotations

import contextlib
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy
from guarded_server import ADMIN, guarded_server
from proxy import Proxy, proxy_to
from stores import StoreContents

from accelsweep.cli.sweeps import publish_now
from accelsweep.errors import InputError
from accelsweep.records.layout import SweepFolder
from accelsweep.tracking.live_publishing import Follower
from accelsweep.tracking.publisher import ArtifactsTooLarge, StoreUnreachable, publish
from accelsweep.tracking.sweep_snapshot import GOES_ON, file_address, up_to_date

pytestmark = pytest.mark.real

READER = ("reader", "hunter3hunter3")


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a real MLflow server with two users: one that may do everything, one that may only read."""
    from mlflow.server import get_app_client

    with (
        guarded_server(tmp_path_factory.mktemp("guarded"), remember_seconds=60) as address,
        pytest.MonkeyPatch.context() as patch,
    ):
        log_in(patch, ADMIN)
        get_app_client("basic-auth", tracking_uri=address).create_user(*READER)
        patch.undo()
        yield address


def log_in(patch: pytest.MonkeyPatch, user: tuple[str, str]) -> None:
    patch.setenv("MLFLOW_TRACKING_USERNAME", user[0])
    patch.setenv("MLFLOW_TRACKING_PASSWORD", user[1])


@pytest.mark.long  # a server of its own; publish/test_publisher.py fills one without passwords by the same requests
def test_a_server_that_refuses_us_ends_it_at_once_and_names_the_variables(
    guarded: str, sweep: SweepFolder, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    refused(sweep, guarded)
    late = sorted(path.parent for path in sweep.root.glob("runs/*-r1/record.json"))[0]
    shutil.move(late, tmp_path / "late")
    log_in(monkeypatch, ADMIN)
    assert publish(sweep, guarded).finished == 22
    shutil.move(tmp_path / "late", late)
    log_in(monkeypatch, READER)
    refused(sweep, guarded)
    log_in(monkeypatch, ADMIN)
    assert publish(sweep, guarded).finished == 23


def refused(sweep: SweepFolder, uri: str) -> None:
    said: list[str] = []
    with pytest.raises(StoreUnreachable, match="refused us") as caught:
        publish(sweep, uri, patience_seconds=1e9, tell=said.append)
    for word in ("MLFLOW_TRACKING_USERNAME", "MLFLOW_TRACKING_PASSWORD", "MLFLOW_TRACKING_TOKEN", "records are safe"):
        assert word in str(caught.value)
    assert "hunter" not in str(caught.value)
    assert said == [], "asking again would not help"
    Follower(sweep, uri, said.append).poll()
    assert len(said) == 1
    assert "refused us" in said[0]
    assert said[0].endswith(GOES_ON), "the head shows it while the sweep is measured"


def test_a_database_without_its_driver_names_the_package_to_install(
    sweep: SweepFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "psycopg2", None)  # as Python says of a package that is not installed
    with pytest.raises(InputError, match="needs the Python package psycopg2: pip install psycopg2-binary") as caught:
        publish(sweep, "postgresql://me:hunter2@127.0.0.1:9/mlflow")
    assert "hunter2" not in str(caught.value)


FOR_EVER = 20.0
"""Patience that no test has: what waits is not told at once."""

LastLine = Callable[[str, str], None]


@pytest.fixture
def proxy(server: str) -> Iterator[Proxy]:
    """A proxy of the test's own in front of the real server that all tests share."""
    with proxy_to(server) as running:
        yield running


def test_an_artifact_beyond_a_proxys_limit_is_named_and_all_the_rest_is_finished(
    sweep: SweepFolder,
    proxy: Proxy,
    read_store: Callable[[SweepFolder, str], StoreContents],
    with_findings: Callable[..., Any],
    last_line: LastLine,
) -> None:
    with_findings(sweep)
    sweep.page.write_text("x" * 1_200_000)
    with pytest.raises(ArtifactsTooLarge) as caught:
        publish(sweep, proxy.address, patience_seconds=FOR_EVER)
    said = str(caught.value)
    assert "report/index.html (1.2 MB)" in said
    assert "(413): raise its limit (nginx: client_max_body_size" in said
    last_line("MLflow behind a proxy with a limit of 1 MiB", said)
    held = read_store(sweep, proxy.address)
    report = held["report:1"]
    assert report["status"] == "FINISHED"
    assert "report" in report["artifacts"], "the figures beside the page"
    assert not [key for key in held if held[key]["status"] == "RUNNING"]
    assert not up_to_date(sweep, proxy.address)
    proxy.most = 1 << 24
    assert publish(sweep, proxy.address).written == 1, "only the run that lacked something"
    assert up_to_date(sweep, proxy.address)


def test_a_request_of_the_api_beyond_the_limit_is_told_as_such(sweep: SweepFolder, proxy: Proxy) -> None:
    proxy.most = 100
    with pytest.raises(StoreUnreachable, match=r"refused a request: .*\(413\): raise its limit"):
        publish(sweep, proxy.address, patience_seconds=FOR_EVER)


def test_a_login_page_is_told_from_a_server_that_is_away(sweep: SweepFolder, proxy: Proxy, last_line: LastLine) -> None:
    proxy.login = True
    with pytest.raises(StoreUnreachable, match=r"a web page \('Sign in to the lab'\) came instead") as caught:
        publish(sweep, proxy.address, patience_seconds=FOR_EVER)
    assert "MLFLOW_TRACKING_TOKEN" in str(caught.value)
    last_line("MLflow behind a login page", str(caught.value))


def test_another_server_at_the_address_is_told_by_its_answer(sweep: SweepFolder, proxy: Proxy) -> None:
    with pytest.raises(StoreUnreachable, match=r"an error 40[45] .*correct the address"):
        publish(sweep, f"{proxy.address}/elsewhere", patience_seconds=FOR_EVER)


def revised(path: Path, revision: str) -> None:
    with contextlib.closing(sqlite3.connect(path)) as store, store:
        store.execute("update alembic_version set version_num = ?", (revision,))


@pytest.mark.parametrize(
    ("revision", "remedy"),
    [
        ("451aebb31d03", "by an older version of MLflow than .*: python -m mlflow db upgrade"),  # that of MLflow 1.0
        ("ffffffffffff", "by a newer version of MLflow than .*: pip install --upgrade mlflow"),
    ],
)
def test_a_database_of_another_mlflow_is_told_and_one_command_fills_a_new_one(
    copied: tuple[SweepFolder, str], revision: str, remedy: str, last_line: LastLine
) -> None:
    folder, uri = copied
    folder.published.unlink()
    revised(folder.home / "mlflow.db", revision)
    with pytest.raises(StoreUnreachable, match=remedy) as caught:
        publish(folder, uri, patience_seconds=FOR_EVER)
    assert "accelsweep publish example --anew sets it aside and fills a new one from the records" in str(caught.value)
    last_line(f"a database of {'a newer' if revision.startswith('f') else 'an older'} MLflow", str(caught.value))
    if revision.startswith("f"):
        command = [sys.executable, "-m", "accelsweep", "publish", "example", "--anew"]
        done = subprocess.run(command, cwd=folder.home, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        assert "23 runs in MLflow" in done.stdout
        assert f"the old store is kept as {folder.home / 'mlflow.db.1'}" in " ".join(done.stdout.split())
        assert up_to_date(folder, uri)
        assert (folder.home / "mlflow.db.1").is_file(), "nothing is lost"


def test_to_start_anew_on_a_server_replaces_our_runs_alone(
    sweep: SweepFolder, server: str, read_store: Callable[[SweepFolder, str], Mapping[str, Any]]
) -> None:
    publish(sweep, server)
    before = sorted(read_store(sweep, server))
    assert "23 runs in MLflow" in publish_now(sweep.home, sweep.name, server, anew=True)
    assert sorted(read_store(sweep, server)) == before


def test_a_read_only_database_is_told_in_the_words_of_sqlite(
    copied: tuple[SweepFolder, str], last_line: LastLine
) -> None:
    folder, _ = copied
    with contextlib.closing(sqlite3.connect(folder.home / "mlflow.db")) as store, store:
        store.execute("delete from tags where key = 'accelsweep.published'")
    read_only = file_address(folder.home / "mlflow.db", {"mode": "ro", "uri": "true"})
    with pytest.raises(StoreUnreachable, match=r"attempt to write a readonly database\. Make the file") as caught:
        publish(folder, read_only, patience_seconds=FOR_EVER)
    assert "SQL" not in str(caught.value)
    last_line("a read-only mlflow.db", str(caught.value))


def test_a_full_disk_below_the_database_is_told(copied: tuple[SweepFolder, str], last_line: LastLine) -> None:
    folder, uri = copied
    with contextlib.closing(sqlite3.connect(folder.home / "mlflow.db")) as store:
        (pages,) = store.execute("pragma page_count").fetchone()
        store.execute("delete from runs")
        store.commit()

    def limited(connection: sqlite3.Connection, _: object) -> None:
        connection.execute(f"pragma max_page_count = {pages}")

    sqlalchemy.event.listen(sqlalchemy.engine.Engine, "connect", limited)
    try:
        with pytest.raises(StoreUnreachable, match=r"database or disk is full\. Make room") as caught:
            publish(folder, f"{uri}?timeout=7", patience_seconds=FOR_EVER)
    finally:
        sqlalchemy.event.remove(sqlalchemy.engine.Engine, "connect", limited)
    last_line("a full disk below mlflow.db", str(caught.value))


def test_a_folder_that_takes_no_artifacts_is_told(copied: tuple[SweepFolder, str]) -> None:
    """A file stands where the folder should: as for a disk that refuses, there is nothing to wait for."""
    folder, uri = copied
    folder.published.unlink()
    shutil.rmtree(folder.home / "mlartifacts")
    (folder.home / "mlartifacts").write_text("in the way")
    for record in folder.root.glob("runs/*/record.json"):
        record.write_bytes(record.read_bytes())
    with contextlib.closing(sqlite3.connect(folder.home / "mlflow.db")) as store, store:
        store.execute("update tags set value = 'old' where key = 'accelsweep.published'")
    with pytest.raises(StoreUnreachable, match=r"cannot be written to: .*mlartifacts"):
        publish(folder, uri, patience_seconds=FOR_EVER)
