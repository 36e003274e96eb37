"""Determines a sweep's MLflow store and artifact location, without importing mlflow."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote_to_bytes, urlsplit

from accelsweep.devices.file_system import Capability, missing_capabilities
from accelsweep.errors import InputError
from accelsweep.records.layout import SweepFolder
from accelsweep.redaction import credentials_of, masked

ARTIFACTS = "mlartifacts"
"""The folder in the working directory that contains all artifacts if the store is a database."""

_SQLITE = "sqlite:///"


def resolve_uri(home: Path, tracking_uri: str | None) -> str:
    """Return the URI of the store: the argument, else MLFLOW_TRACKING_URI, else the file `HOME/mlflow.db`.

    Relative SQLite paths become absolute. Raises InputError for a URI that cannot be parsed.
    """
    uri = tracking_uri or os.environ.get("MLFLOW_TRACKING_URI")
    if not uri:
        return sqlite_uri(home.resolve() / "mlflow.db")
    if not uri.startswith(_SQLITE):
        _check_login(uri)
        return uri
    database, query = _split_sqlite(uri)
    return uri if uri.startswith(f"{_SQLITE}/") else sqlite_uri(home.resolve() / _path(database, query), query)


def sqlite_uri(path: Path, query: Mapping[str, Any] | None = None) -> str:
    """Return the URI of a SQLite store for any file name; `query` contains driver options.

    SQLAlchemy reads a path only up to the first question mark, so a path that contains one is passed as a `file:` URI.
    Its slashes are percent-encoded as well, because MLflow creates a folder from everything before the last slash.
    """
    if "?" not in str(path) and not query:
        return f"{_SQLITE}{path}"  # same result as below, without the slow import of SQLAlchemy
    import sqlalchemy

    options = dict(query or {})
    database = str(path)
    if "?" in database or options.get("uri"):
        database = f"file:{quote(os.fsencode(path), safe='')}"
        options["uri"] = "true"
    return sqlalchemy.URL.create("sqlite", database=database, query=options).render_as_string(hide_password=False)


def sqlite_path(uri: str) -> Path | None:
    """Return the file of a SQLite store, or None for any other store."""
    return _path(*_split_sqlite(uri)) if uri.startswith(_SQLITE) else None


def is_server(uri: str) -> bool:
    """Return whether the store is a tracking server."""
    return uri.startswith(("http://", "https://"))


def without_login(uri: str) -> str:
    """Return a server's URL without credentials, for a browser, which prompts for them itself."""
    parts = urlsplit(uri)
    return parts._replace(netloc=parts.netloc.rpartition("@")[2]).geturl().rstrip("/")


def artifact_location(folder: SweepFolder, uri: str) -> str | None:
    """Return the URI of the sweep's artifacts, `HOME/mlartifacts/NAME`, or None if the server chooses it."""
    if not uri.startswith(("sqlite:", "postgresql", "mysql", "mssql")):
        return None
    return (folder.home.resolve() / ARTIFACTS / folder.name).as_uri()


def require_file_locks(uri: str) -> None:
    """Raise InputError if a SQLite file would have to be created on a file system that does not support locking.

    SQLite itself would only keep reporting that the database is locked.
    """
    path = sqlite_path(uri)
    if path is None or path.exists() or not missing_capabilities(path.parent, Capability.locks):
        return
    raise InputError(
        f"{path.parent} is on a disk without file locks, where SQLite cannot write {path.name}: choose a store "
        "elsewhere, such as --tracking-uri sqlite:////tmp/mlflow.db, or a server. All records are safe"
    )


def _check_login(uri: str) -> None:
    """Raise InputError if the password contains unquoted delimiters, because parser errors would reveal part of it."""
    login = credentials_of(uri) or ""
    if any(sign in login for sign in ("/?#" if is_server(uri) else "@")):
        raise InputError(
            f"the MLflow URL {masked(uri)} cannot be parsed because of a delimiter in its password: write / as "
            "%2F, @ as %40, ? as %3F and # as %23"
            + (", or set MLFLOW_TRACKING_USERNAME and MLFLOW_TRACKING_PASSWORD" if is_server(uri) else "")
        )


def _split_sqlite(uri: str) -> tuple[str, Mapping[str, Any]]:
    """Split a SQLite URI into database and options. Raises InputError for malformed options."""
    path, mark, options = uri.removeprefix(_SQLITE).partition("?")
    if not mark:
        return path, {}
    for option in options.split("&"):
        if "=" not in option:
            raise InputError(
                f"the MLflow URL {uri} has a '?', which must be followed by options such as timeout=5, but {option!r} "
                f"is not an option. If it is part of the path, write {sqlite_uri(Path(f'{path}?{options}'))}"
            )
    import sqlalchemy

    url = sqlalchemy.make_url(uri)
    return url.database or "", url.query


def _path(database: str, query: Mapping[str, Any]) -> Path:
    if query.get("uri") and database.startswith("file:"):
        return Path(os.fsdecode(unquote_to_bytes(urlsplit(database).path)))
    return Path(database)
