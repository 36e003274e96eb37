"""A failure that no retry can fix ends in one sentence with cause and remedy; any other one in the system's words."""

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
import requests
import sqlalchemy
from guarded_server import ADMIN, guarded_server
from mlflow.exceptions import MlflowException
from mlflow.protos.databricks_pb2 import PERMISSION_DENIED, UNAUTHENTICATED
from proxy import Proxy, proxy_to
from stores import StoreContents

from accelsweep.cli.sweeps import publish_now
from accelsweep.errors import InputError
from accelsweep.records.layout import SweepFolder
from accelsweep.tracking.live_publishing import LivePublisher
from accelsweep.tracking.published_state import SWEEP_CONTINUES, up_to_date
from accelsweep.tracking.publisher import ArtifactsTooLarge, publish
from accelsweep.tracking.store_errors import StoreUnavailable, permanent_error, short_reason
from accelsweep.tracking.store_uri import sqlite_uri

URI = "http://bob:hunter2@mlflow.example"
READER = ("reader", "hunter3hunter3")
UNLIMITED = 20.0
"""Seconds of retries that no test has time for: an error that comes at once was not retried."""

LastLine = Callable[[str, str], None]
ReadStore = Callable[[SweepFolder, str], StoreContents]


def message(error: Exception, experiment: str | None = "quick") -> str:
    return str(permanent_error(URI, error, experiment, "quick"))


def test_a_wrong_password_and_a_missing_permission_have_different_remedies() -> None:
    login = message(MlflowException("401", UNAUTHENTICATED), experiment=None)
    permission = message(MlflowException("403", PERMISSION_DENIED))
    assert "no user 'bob' with this password" in login
    assert "user 'bob' may not write to the experiment 'quick'" in permission
    assert "grant EDIT to 'bob'" in permission
    for text in (login, permission):
        assert text.startswith("MLflow at http://***@mlflow.example rejected ")
        assert text.endswith("All records are safe")
        assert "hunter2" not in text


def test_without_an_experiment_it_is_the_creation_of_one_that_is_not_permitted() -> None:
    text = message(MlflowException("403", PERMISSION_DENIED), experiment=None)
    assert "user 'bob' may not create an experiment. " in text


def test_rejected_artifacts_have_the_same_message() -> None:
    response = requests.Response()
    response.status_code = 403
    error = requests.HTTPError("403 Client Error", response=response)
    assert "user 'bob' may not write to the experiment 'quick'" in message(error)


@pytest.mark.parametrize("error", [ConnectionError("gone"), MlflowException("500"), requests.HTTPError("no response")])
def test_any_other_error_is_worth_a_retry(error: Exception) -> None:
    assert permanent_error(URI, error, "quick", "quick") is None


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (
            MlflowException(
                "API request to http://me:secret@host/api failed with HTTPConnectionPool(host='host', port=1): "
                "Max retries exceeded with url: /api (Caused by NewConnectionError('<urllib3 object>: Failed to"
                " establish a new connection: [Errno 111] Connection refused'))"
            ),
            "Connection refused",
        ),
        (OSError(28, "No space left on device", "/a/b"), "[Errno 28] No space left on device: '/a/b'"),
        (MlflowException("first\nsecond http://me:secret@host"), "first"),
        (TimeoutError(), "TimeoutError"),
    ],
)
def test_the_reason_of_a_failure_is_the_last_cause_in_one_line(error: Exception, expected: str) -> None:
    assert short_reason(error) == expected


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a real MLflow server with two users: an admin, and one with read permission only."""
    from mlflow.server import get_app_client

    with (
        guarded_server(tmp_path_factory.mktemp("guarded"), cache_seconds=60) as address,
        pytest.MonkeyPatch.context() as patch,
    ):
        log_in(patch, ADMIN)
        get_app_client("basic-auth", tracking_uri=address).create_user(*READER)
        patch.undo()
        yield address


def log_in(patch: pytest.MonkeyPatch, user: tuple[str, str]) -> None:
    patch.setenv("MLFLOW_TRACKING_USERNAME", user[0])
    patch.setenv("MLFLOW_TRACKING_PASSWORD", user[1])


@pytest.mark.real
@pytest.mark.long  # a server of its own; tracking/test_publisher.py sends the same requests to one without passwords
def test_a_server_that_rejects_us_ends_publishing_at_once_and_names_the_variables(
    guarded: str, sweep: SweepFolder, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    check_rejected(sweep, guarded)
    late = sorted(path.parent for path in sweep.root.glob("runs/*-r1/record.json"))[0]
    shutil.move(late, tmp_path / "late")
    log_in(monkeypatch, ADMIN)
    assert publish(sweep, guarded).finished == 22
    shutil.move(tmp_path / "late", late)
    log_in(monkeypatch, READER)
    check_rejected(sweep, guarded)
    log_in(monkeypatch, ADMIN)
    assert publish(sweep, guarded).finished == 23


def check_rejected(sweep: SweepFolder, uri: str) -> None:
    lines: list[str] = []
    with pytest.raises(StoreUnavailable, match="rejected") as caught:
        publish(sweep, uri, retry_seconds=1e9, echo=lines.append)
    for text in ("MLFLOW_TRACKING_USERNAME", "MLFLOW_TRACKING_PASSWORD", "MLFLOW_TRACKING_TOKEN", "records are safe"):
        assert text in str(caught.value)
    assert "hunter" not in str(caught.value)
    assert lines == [], "a retry would not help"
    LivePublisher(sweep, uri, lines.append).poll()
    assert len(lines) == 1
    assert "rejected" in lines[0]
    assert lines[0].endswith(SWEEP_CONTINUES), "so the driver shows it during the sweep"


@pytest.mark.real
def test_a_missing_database_driver_is_reported_with_its_package(
    sweep: SweepFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "psycopg2", None)  # makes its import fail
    with pytest.raises(InputError, match="needs the Python package psycopg2: pip install psycopg2-binary") as caught:
        publish(sweep, "postgresql://me:hunter2@127.0.0.1:9/mlflow")
    assert "hunter2" not in str(caught.value)
    with pytest.raises(InputError, match="needs the Python package psycopg2"):
        LivePublisher(sweep, "postgresql://me:hunter2@127.0.0.1:9/mlflow", print).poll()


@pytest.mark.real
@pytest.mark.parametrize("package", ["mlflow", "alembic"])
def test_a_publisher_without_mlflow_reports_the_package(
    sweep: SweepFolder, monkeypatch: pytest.MonkeyPatch, package: str
) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(InputError, match=f"needs the Python package {package}: pip install {package}"):
        LivePublisher(sweep, f"sqlite:///{sweep.home}/mlflow.db", print).poll()


@pytest.fixture
def proxy(server: str) -> Iterator[Proxy]:
    """A proxy of the test's own in front of the shared server."""
    with proxy_to(server) as running:
        yield running


@pytest.mark.real
def test_an_artifact_beyond_a_proxys_limit_is_reported_after_everything_else_was_copied(
    small_sweep: SweepFolder,
    proxy: Proxy,
    read_store: ReadStore,
    with_findings: Callable[..., Any],
    last_line: LastLine,
) -> None:
    with_findings(small_sweep)
    small_sweep.page.write_text("x" * 1_200_000)
    with pytest.raises(ArtifactsTooLarge) as caught:
        publish(small_sweep, proxy.address, retry_seconds=UNLIMITED)
    text = str(caught.value)
    assert "report/index.html (1.2 MB)" in text
    assert "(413): raise its limit (nginx: client_max_body_size" in text
    last_line("MLflow behind a proxy with a limit of 1 MiB", text)
    runs = read_store(small_sweep, proxy.address)
    report = runs["report:1"]
    assert report["status"] == "FINISHED"
    assert "report" in report["artifacts"], "the figures were copied"
    assert not [key for key in runs if runs[key]["status"] == "RUNNING"]
    assert not up_to_date(small_sweep, proxy.address)
    proxy.max_bytes = 1 << 24
    assert publish(small_sweep, proxy.address).written == 1, "only the run that lacked an artifact"
    assert up_to_date(small_sweep, proxy.address)


@pytest.mark.real
def test_an_api_request_beyond_a_proxys_limit_is_reported_as_such(sweep: SweepFolder, proxy: Proxy) -> None:
    proxy.max_bytes = 100
    with pytest.raises(StoreUnavailable, match=r"rejected a request: .*\(413\): raise its limit"):
        publish(sweep, proxy.address, retry_seconds=UNLIMITED)


@pytest.mark.real
def test_a_login_page_is_reported_by_its_title(sweep: SweepFolder, proxy: Proxy, last_line: LastLine) -> None:
    proxy.login = True
    with pytest.raises(StoreUnavailable, match=r"answered with a web page \('Sign in to the lab'\)") as caught:
        publish(sweep, proxy.address, retry_seconds=UNLIMITED)
    assert "MLFLOW_TRACKING_TOKEN" in str(caught.value)
    last_line("MLflow behind a login page", str(caught.value))


@pytest.mark.real
def test_a_server_that_is_not_mlflow_is_reported_by_its_status(sweep: SweepFolder, proxy: Proxy) -> None:
    with pytest.raises(StoreUnavailable, match=r"answered with HTTP status 40[45].*correct the URL"):
        publish(sweep, f"{proxy.address}/elsewhere", retry_seconds=UNLIMITED)


@pytest.mark.real
@pytest.mark.parametrize(
    ("revision", "remedy"),
    [
        ("451aebb31d03", "by an older version of MLflow than .*: python -m mlflow db upgrade"),  # that of MLflow 1.0
        ("ffffffffffff", "by a newer version of MLflow than .*: pip install --upgrade mlflow"),
    ],
)
def test_a_database_of_another_mlflow_version_is_reported_and_one_command_replaces_it(
    copied: tuple[SweepFolder, str], revision: str, remedy: str, last_line: LastLine
) -> None:
    folder, uri = copied
    folder.published.unlink()
    with contextlib.closing(sqlite3.connect(folder.home / "mlflow.db")) as store, store:
        store.execute("update alembic_version set version_num = ?", (revision,))
    with pytest.raises(StoreUnavailable, match=remedy) as caught:
        publish(folder, uri, retry_seconds=UNLIMITED)
    assert "accelsweep publish example --anew moves it aside and fills a new one from the records" in str(caught.value)
    last_line(f"a database of {'a newer' if revision.startswith('f') else 'an older'} MLflow", str(caught.value))
    if revision.startswith("f"):
        command = [sys.executable, "-m", "accelsweep", "publish", "example", "--anew"]
        done = subprocess.run(command, cwd=folder.home, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        assert "23 runs in MLflow" in done.stdout
        assert f"the old store is kept as {folder.home / 'mlflow.db.1'}" in " ".join(done.stdout.split())
        assert up_to_date(folder, uri)
        assert (folder.home / "mlflow.db.1").is_file(), "nothing is lost"


@pytest.mark.real
def test_publishing_anew_to_a_server_replaces_our_runs_only(
    small_sweep: SweepFolder, server: str, read_store: Callable[[SweepFolder, str], Mapping[str, Any]]
) -> None:
    publish(small_sweep, server)
    before = sorted(read_store(small_sweep, server))
    assert "8 runs in MLflow" in publish_now(small_sweep.home, small_sweep.name, server, reset=True)
    assert sorted(read_store(small_sweep, server)) == before


def test_publishing_anew_to_a_server_that_is_down_is_an_error_without_a_traceback(sweep: SweepFolder) -> None:
    with pytest.raises(StoreUnavailable, match="does not answer"):
        publish_now(sweep.home, sweep.name, "http://127.0.0.1:9", reset=True)


@pytest.mark.real
def test_a_read_only_database_is_reported_in_sqlites_words(
    copied: tuple[SweepFolder, str], last_line: LastLine
) -> None:
    folder, _ = copied
    with contextlib.closing(sqlite3.connect(folder.home / "mlflow.db")) as store, store:
        store.execute("delete from tags where key = 'accelsweep.published'")
    read_only = sqlite_uri(folder.home / "mlflow.db", {"mode": "ro", "uri": "true"})
    with pytest.raises(StoreUnavailable, match=r"attempt to write a readonly database\. Make the file") as caught:
        publish(folder, read_only, retry_seconds=UNLIMITED)
    assert "SQL" not in str(caught.value)
    last_line("a read-only mlflow.db", str(caught.value))


@pytest.mark.real
def test_a_full_disk_is_reported(copied: tuple[SweepFolder, str], last_line: LastLine) -> None:
    folder, uri = copied
    with contextlib.closing(sqlite3.connect(folder.home / "mlflow.db")) as store:
        (pages,) = store.execute("pragma page_count").fetchone()
        store.execute("delete from runs")
        store.commit()

    def limit_size(connection: sqlite3.Connection, _: object) -> None:
        connection.execute(f"pragma max_page_count = {pages}")

    sqlalchemy.event.listen(sqlalchemy.engine.Engine, "connect", limit_size)
    try:
        with pytest.raises(StoreUnavailable, match=r"database or disk is full\. Free some space") as caught:
            publish(folder, f"{uri}?timeout=7", retry_seconds=UNLIMITED)
    finally:
        sqlalchemy.event.remove(sqlalchemy.engine.Engine, "connect", limit_size)
    last_line("a full disk below mlflow.db", str(caught.value))


@pytest.mark.real
def test_an_artifact_folder_that_cannot_be_written_is_reported(copied: tuple[SweepFolder, str]) -> None:
    folder, uri = copied
    folder.published.unlink()
    shutil.rmtree(folder.home / "mlartifacts")
    (folder.home / "mlartifacts").write_text("a file where the folder should be")
    with contextlib.closing(sqlite3.connect(folder.home / "mlflow.db")) as store, store:
        store.execute("update tags set value = 'old' where key = 'accelsweep.published'")
    with pytest.raises(StoreUnavailable, match=r"cannot be written to: .*mlartifacts"):
        publish(folder, uri, retry_seconds=UNLIMITED)
