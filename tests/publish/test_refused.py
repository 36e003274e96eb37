"""Servers that ask for a password, and stores without a driver: one sentence says what to set or to install."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from guarded_server import ADMIN, guarded_server

from accelsweep.base.errors import InputError
from accelsweep.publish.follow import Follower
from accelsweep.publish.publisher import StoreUnreachable, publish
from accelsweep.publish.store.location import GOES_ON
from accelsweep.state.folders import SweepFolder

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
