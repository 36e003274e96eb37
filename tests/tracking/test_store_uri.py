"""Which store is used, where its artifacts go, and that its password is never shown."""

from __future__ import annotations

from pathlib import Path

import pytest
from mlflow.store.db.utils import _make_parent_dirs_if_sqlite, create_sqlalchemy_engine
from mlflow.utils.file_utils import local_file_uri_to_path

from accelsweep.errors import InputError
from accelsweep.records.layout import SweepFolder
from accelsweep.redaction import masked
from accelsweep.tracking.store_uri import artifact_location, is_server, resolve_uri, sqlite_path

HOME = Path("/home/me/work")


@pytest.mark.parametrize(
    ("text", "expected"),
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
def test_credentials_in_addresses_are_masked(text: str, expected: str) -> None:
    assert masked(text) == expected


def test_the_argument_has_precedence_over_the_environment_and_the_default(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://from-environment")
    assert resolve_uri(HOME, "http://argument") == "http://argument"
    assert resolve_uri(HOME, None) == "http://from-environment"
    monkeypatch.delenv("MLFLOW_TRACKING_URI")
    assert resolve_uri(HOME, None) == "sqlite:////home/me/work/mlflow.db"


def test_a_relative_sqlite_path_is_relative_to_the_working_directory() -> None:
    assert resolve_uri(HOME, "sqlite:///deep/my.db") == "sqlite:////home/me/work/deep/my.db"
    assert resolve_uri(HOME, "sqlite:////else/my.db") == "sqlite:////else/my.db"
    assert sqlite_path("sqlite:////else/my.db") == Path("/else/my.db")
    assert sqlite_path("http://host") is None


ODD_NAMES = [
    "x?y", "a#b", "c%20d", "e f", "g'h", 'i"j', "k&l=m", "n%3Fo?p=q", "-r", "s\nt", "u\\v", "{w}[x]*$H`", "ü",
    "?uri=true",
]  # fmt: skip


@pytest.mark.parametrize("name", ODD_NAMES)
def test_a_folder_of_any_name_holds_its_store(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    home, elsewhere = tmp_path / "homes" / name, tmp_path / "elsewhere"
    home.mkdir(parents=True)
    elsewhere.mkdir()
    monkeypatch.chdir(elsewhere)
    for given, file in ((None, "mlflow.db"), ("sqlite:///my.db", "my.db"), ("sqlite:///with.db?timeout=5", "with.db")):
        uri = resolve_uri(home, given)
        assert resolve_uri(home, uri) == uri
        assert sqlite_path(uri) == home / file
        _make_parent_dirs_if_sqlite(uri)
        engine = create_sqlalchemy_engine(uri)
        with engine.begin() as connection:
            connection.exec_driver_sql("create table t (x)")
        engine.dispose()
        assert (home / file).stat().st_size > 0
        artifacts = artifact_location(SweepFolder(home, "q"), uri)
        assert local_file_uri_to_path(str(artifacts)) == str(home / "mlartifacts" / "q")
    assert list(home.parent.iterdir()) == [home], "no other folder was created"
    assert list(elsewhere.iterdir()) == []


@pytest.mark.parametrize("address", ["sqlite:////a/x?y/mlflow.db", "sqlite:///x?y&z=1"])
def test_a_question_mark_without_options_is_rejected_with_the_address_that_was_meant(address: str) -> None:
    with pytest.raises(
        InputError, match=r"'y.*' is not an option\. If it is part of the path, write sqlite:///file:"
    ) as caught:
        resolve_uri(HOME, address)
    meant = str(caught.value).rpartition(" ")[2]
    assert str(sqlite_path(meant)) == address.removeprefix("sqlite:///")


@pytest.mark.parametrize(
    "address",
    ["http://me:pa/hunter2@host:5000", "https://me:pa?hunter2@host", "https://me:#hunter2@host",
     "postgresql://me:pa@hunter2@host/db", "mysql+pymysql://me:p@/hunter2@host/db"],
)  # fmt: skip
def test_a_password_with_an_unquoted_delimiter_is_rejected_without_showing_it(address: str) -> None:
    with pytest.raises(InputError, match="write / as %2F, @ as %40") as caught:
        resolve_uri(HOME, address)
    assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize(
    "address",
    ["http://me:p'a\"@s%s@host:5000", "postgresql://me:pa/s's?w%d@host:5432/db", "https://host/?token=a/b@c"],
)
def test_a_password_that_parsers_understand_is_accepted(address: str) -> None:
    assert resolve_uri(HOME, address) == address


def test_artifacts_are_in_the_working_directory_unless_a_server_decides() -> None:
    folder = SweepFolder(HOME, "quick")
    assert artifact_location(folder, "sqlite:////home/me/work/mlflow.db") == "file:///home/me/work/mlartifacts/quick"
    assert artifact_location(folder, "postgresql://db/mlflow") == "file:///home/me/work/mlartifacts/quick"
    assert artifact_location(folder, "https://host") is None
    assert is_server("https://host")
    assert not is_server("postgresql://db/mlflow")
