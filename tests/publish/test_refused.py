"""Servers that ask for a password, and stores without a driver: one sentence says what to set or to install."""

from __future__ import annotations

import importlib.util
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from accelsweep.base.errors import InputError
from accelsweep.publish.publisher import StoreUnreachable, publish
from accelsweep.publish.ui import Server
from accelsweep.state.folders import SweepFolder

pytestmark = pytest.mark.real

ADMIN = ("admin", "hunter2hunter2")
READER = ("reader", "hunter3hunter3")
AUTH = f"""\
[mlflow]
default_permission = READ
database_uri = sqlite:///auth.db
admin_username = {ADMIN[0]}
admin_password = {ADMIN[1]}
authorization_function = mlflow.server.auth:authenticate_request_basic_auth
"""


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory, free_port: int) -> Iterator[str]:
    """The address of a real MLflow server with two users: one that may do everything, one that may only read."""
    from mlflow.server import get_app_client

    home = tmp_path_factory.mktemp("guarded")
    (home / "auth.ini").write_text(AUTH)
    command = [sys.executable, "-m", "mlflow", "server", "--app-name", "basic-auth", "--host", "127.0.0.1"]
    command += ["--port", str(free_port), "--workers", "1", "--backend-store-uri", "sqlite:///mlflow.db"]
    environment = os.environ | {
        "MLFLOW_AUTH_CONFIG_PATH": str(home / "auth.ini"),
        "MLFLOW_FLASK_SERVER_SECRET_KEY": "not a secret",
        "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false",
    }
    with (home / "log").open("w+b") as log:
        process = subprocess.Popen(
            command, cwd=home, env=environment, stdout=log, stderr=subprocess.STDOUT, start_new_session=True
        )
        try:
            server = Server(process, free_port, log)
            server.wait_until_it_answers()
            with pytest.MonkeyPatch.context() as patch:
                log_in(patch, ADMIN)
                get_app_client("basic-auth", tracking_uri=server.address).create_user(*READER)
            yield server.address
        finally:
            os.killpg(process.pid, signal.SIGTERM)
            process.wait()


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


@pytest.mark.skipif(importlib.util.find_spec("psycopg2") is not None, reason="the driver is here")
def test_a_database_without_its_driver_names_the_package_to_install(sweep: SweepFolder) -> None:
    with pytest.raises(InputError, match="needs the Python package psycopg2: pip install psycopg2-binary") as caught:
        publish(sweep, "postgresql://me:hunter2@127.0.0.1:9/mlflow")
    assert "hunter2" not in str(caught.value)
