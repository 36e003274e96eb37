"""Which store is meant, where its artifacts go, and that its password is never shown."""

from __future__ import annotations

from pathlib import Path

import pytest

from accelsweep.base.secrets import masked
from accelsweep.publish.store.location import artifact_location, database_file, is_server, resolve
from accelsweep.state.folders import SweepFolder

HOME = Path("/home/me/work")


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("http://me:secret@host:5000/x", "http://***@host:5000/x"),
        ("postgresql+psycopg2://me:p%40ss@db/mlflow", "postgresql+psycopg2://***@db/mlflow"),
        ("https://token@host", "https://***@host"),
        ("https://host/?api_key=abc&x=1", "https://host/?api_key=***&x=1"),
        ("two: http://a:b@c and ftp://d:e@f", "two: http://***@c and ftp://***@f"),
        ("mail me@host", "mail me@host"),
        ("sqlite:////home/me/mlflow.db", "sqlite:////home/me/mlflow.db"),
    ],
)
def test_credentials_in_addresses_are_masked(text: str, shown: str) -> None:
    assert masked(text) == shown


def test_the_argument_counts_before_the_environment_and_that_before_the_default(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://from-environment")
    assert resolve(HOME, "http://asked") == "http://asked"
    assert resolve(HOME, None) == "http://from-environment"
    monkeypatch.delenv("MLFLOW_TRACKING_URI")
    assert resolve(HOME, None) == "sqlite:////home/me/work/mlflow.db"


def test_a_relative_sqlite_path_is_below_the_working_directory() -> None:
    assert resolve(HOME, "sqlite:///deep/my.db") == "sqlite:////home/me/work/deep/my.db"
    assert resolve(HOME, "sqlite:////else/my.db") == "sqlite:////else/my.db"
    assert database_file("sqlite:////else/my.db") == Path("/else/my.db")
    assert database_file("http://host") is None


def test_artifacts_lie_below_the_working_directory_unless_a_server_decides() -> None:
    folder = SweepFolder(HOME, "quick")
    assert artifact_location(folder, "sqlite:////home/me/work/mlflow.db") == "file:///home/me/work/mlartifacts/quick"
    assert artifact_location(folder, "postgresql://db/mlflow") == "file:///home/me/work/mlartifacts/quick"
    assert artifact_location(folder, "https://host") is None
    assert is_server("https://host")
    assert not is_server("postgresql://db/mlflow")
