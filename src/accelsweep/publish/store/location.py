"""The MLflow store of a sweep, and the place of its artifacts."""

from __future__ import annotations

import os
from pathlib import Path
from urllib.parse import unquote, urlsplit

from accelsweep.base.errors import InputError
from accelsweep.machine.disk import Ability, lacking
from accelsweep.state.folders import SweepFolder

ARTIFACTS = "mlartifacts"
"""The folder of all artifacts beside a store in a file, in the working directory."""

GOES_ON = "; the sweep goes on"
"""The end of what a publisher says of a store while its sweep is measured; the head shows such lines at once."""


def resolve(home: Path, tracking_uri: str | None) -> str:
    """Return the address of the store to use, absolute where it names a file.

    The order is: the argument, the environment variable MLFLOW_TRACKING_URI, `sqlite:///HOME/mlflow.db`.
    """
    uri = tracking_uri or os.environ.get("MLFLOW_TRACKING_URI") or "sqlite:///mlflow.db"
    if uri.startswith("sqlite:///") and not uri.startswith("sqlite:////"):
        return f"sqlite:///{home.resolve() / uri.removeprefix('sqlite:///')}"
    return uri


def database_file(uri: str) -> Path | None:
    """Return the file of a SQLite store, or None for any other store."""
    if not uri.startswith("sqlite:///"):
        return None
    return Path(unquote(uri.removeprefix("sqlite:///").split("?")[0]))


def refuse_without_locks(uri: str) -> None:
    """Raise InputError where the store is a SQLite file that does not exist yet, on a disk on which none can be made.

    SQLite would say that the database is locked, for as long as it is asked.
    """
    path = database_file(uri)
    if path is None or path.exists() or not lacking(path.parent, Ability.locks):
        return
    raise InputError(
        f"{path.parent} lies on a disk without file locks, where SQLite can write no {path.name}: name a store "
        f"elsewhere, such as --tracking-uri sqlite:////tmp/{path.name}, or a server. All records are safe"
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
