"""The MLflow store of a sweep, and the place of its artifacts."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote_to_bytes, urlsplit

from accelsweep.base.errors import InputError
from accelsweep.base.secrets import login_of, masked
from accelsweep.machine.disk import Ability, lacking
from accelsweep.state.folders import SweepFolder

ARTIFACTS = "mlartifacts"
"""The folder of all artifacts beside a store in a file, in the working directory."""

DATABASE = "mlflow.db"
"""The file of the store in the working directory, where no other store is named."""

_SQLITE = "sqlite:///"

GOES_ON = "; the sweep goes on"
"""The end of what a publisher says of a store while its sweep is measured; the head shows such lines at once."""


def resolve(home: Path, tracking_uri: str | None) -> str:
    """Return the address of the store to use, absolute where it names a file.

    The order is: the argument, the environment variable MLFLOW_TRACKING_URI, the file `HOME/mlflow.db`. Raises
    InputError where an address cannot be read.
    """
    uri = tracking_uri or os.environ.get("MLFLOW_TRACKING_URI")
    if not uri:
        return file_address(home.resolve() / DATABASE)
    if not uri.startswith(_SQLITE):
        _refuse_bare_login(uri)
        return uri
    database, query = _parsed(uri)
    if uri.startswith(f"{_SQLITE}/"):
        return uri
    return file_address(home.resolve() / _path(database, query), query)


def file_address(path: Path, query: Mapping[str, Any] | None = None) -> str:
    """Return the address of a SQLite store in a file, which may have any name; `query` holds options of its driver.

    SQLAlchemy takes the path as it stands, but only up to a question mark. A path with one is given as a `file:` URI.
    Its slashes are quoted, too: MLflow would take the text before the last one for a folder, and make it.
    """
    if "?" not in str(path) and not query:
        return f"{_SQLITE}{path}"  # as below; the import of SQLAlchemy takes a good part of a second
    import sqlalchemy

    options = dict(query or {})
    database = str(path)
    if "?" in database or options.get("uri"):
        database = f"file:{quote(os.fsencode(path), safe='')}"
        options["uri"] = "true"
    return sqlalchemy.URL.create("sqlite", database=database, query=options).render_as_string(hide_password=False)


def database_file(uri: str) -> Path | None:
    """Return the file of a SQLite store, or None for any other store."""
    return _path(*_parsed(uri)) if uri.startswith(_SQLITE) else None


def _refuse_bare_login(uri: str) -> None:
    """Raise InputError for a login that its reader would end early, and then show the rest of it in its errors."""
    login = login_of(uri) or ""
    if any(sign in login for sign in ("/?#" if is_server(uri) else "@")):
        raise InputError(
            f"MLflow's address {masked(uri)} cannot be read, because its password has a sign that ends it: write / as "
            "%2F, @ as %40, ? as %3F and # as %23"
            + (", or set MLFLOW_TRACKING_USERNAME and MLFLOW_TRACKING_PASSWORD" if is_server(uri) else "")
        )


def _parsed(uri: str) -> tuple[str, Mapping[str, Any]]:
    """Return the database of a SQLite address and its options. Raises InputError where they are none."""
    path, mark, options = uri.removeprefix(_SQLITE).partition("?")
    if not mark:
        return path, {}
    if any("=" not in option for option in options.split("&")):
        raise InputError(
            f"MLflow's address {uri} has a '?', and options such as timeout=5 must follow it: {options!r} is none. "
            f"Where it belongs to the path, write {file_address(Path(f'{path}?{options}'))}"
        )
    import sqlalchemy

    url = sqlalchemy.make_url(uri)
    return url.database or "", url.query


def _path(database: str, query: Mapping[str, Any]) -> Path:
    if query.get("uri") and database.startswith("file:"):
        return Path(os.fsdecode(unquote_to_bytes(urlsplit(database).path)))
    return Path(database)


def refuse_without_locks(uri: str) -> None:
    """Raise InputError where the store is a SQLite file that does not exist yet, on a disk on which none can be made.

    SQLite would say that the database is locked, for as long as it is asked.
    """
    path = database_file(uri)
    if path is None or path.exists() or not lacking(path.parent, Ability.locks):
        return
    raise InputError(
        f"{path.parent} lies on a disk without file locks, where SQLite can write no {path.name}: name a store "
        "elsewhere, such as --tracking-uri sqlite:////tmp/mlflow.db, or a server. All records are safe"
    )


def is_server(uri: str) -> bool:
    """Return whether the store is a tracking server, which then decides itself where artifacts lie."""
    return uri.startswith(("http://", "https://"))


def without_login(uri: str) -> str:
    """Return a server's address as one opens it: without user and password, for which a browser asks by itself."""
    parts = urlsplit(uri)
    return parts._replace(netloc=parts.netloc.rpartition("@")[2]).geturl().rstrip("/")


def artifact_location(folder: SweepFolder, uri: str) -> str | None:
    """Return the place of the sweep's artifacts: `HOME/mlartifacts/NAME`, or None where a server decides."""
    if is_server(uri) or not uri.startswith(("sqlite:", "postgresql", "mysql", "mssql")):
        return None
    return (folder.home.resolve() / ARTIFACTS / folder.name).as_uri()
