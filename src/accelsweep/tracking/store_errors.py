"""Classifies errors from an MLflow store: retrying may fix some; all others are reported with a cause and a remedy."""

from __future__ import annotations

import accelsweep.tracking.mlflow_settings  # noqa: F401 - before mlflow

# isort: split
import contextlib
import errno
import getpass
import html
import importlib.util
import re
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path
from urllib.parse import urlsplit

from accelsweep.errors import DISK_ERRORS, AccelsweepError, DamagedFile, InputError, describe_os_error
from accelsweep.redaction import masked
from accelsweep.tracking.store_uri import is_server, sqlite_path

HTTP_TOO_LARGE = 413
TOO_LARGE_REMEDY = "a proxy in front of it rejects this size (413): raise its limit (nginx: client_max_body_size 64m)"

_HTTP_CODES = {"UNAUTHENTICATED": 401, "CUSTOMER_UNAUTHORIZED": 401, "PERMISSION_DENIED": 403}  # MLflow's names
_HTTP_NOT_MLFLOW = (404, 405, 410, 501)  # MLflow itself would respond with an error code in JSON
_HTTP_STATUS = re.compile(r"failed with error code (\d{3})\b")
_ERRNO_TEXT = re.compile(r"\[Errno -?\d+\] ([^'\")\]>]+)")
_SCHEMA = re.compile(r"found version (\w+)|Can't locate revision identified by '(\w+)'")
_TITLE = re.compile(r"<title[^>]*>([^<]*)", re.IGNORECASE)

_SQLITE_DAMAGED = ("malformed", "not a database", "unsupported file format")
_SQLITE_READ_ONLY = ("readonly database", "unable to open database file", "access permission denied")
_SQLITE_FULL = ("database or disk is full", "disk I/O error")
_PATH_OCCUPIED = frozenset({errno.ENOTDIR, errno.EEXIST, errno.EISDIR})

_DATABASE_REJECTIONS = (
    "authentication failed",
    "access denied",
    "permission denied",
    "does not exist",
    "unknown database",
    "read-only transaction",
    "read-only mode",
    "no space left",
)
"""Lower-case PostgreSQL and MySQL messages about errors that retrying cannot fix."""

_PIP_NAMES = {"psycopg2": "psycopg2-binary", "MySQLdb": "mysqlclient"}

_LOGIN = "MLFLOW_TRACKING_USERNAME and MLFLOW_TRACKING_PASSWORD, or MLFLOW_TRACKING_TOKEN,"
_SAFE = "All records are safe"


class StoreUnavailable(AccelsweepError):
    """MLflow did not respond, or rejected the request. The records are safe; publishing can be repeated at any time."""


class StoreDamaged(DamagedFile):
    """A SQLite store's file cannot be read. It may contain data other than our copies, so it is never deleted."""

    def __init__(self, path: Path, why: str, sweep: str = "NAME") -> None:
        """`sweep` is the sweep to be published."""
        super().__init__(path, f"{why}; {reset_remedy(sweep)}. {_SAFE}")


def store_exceptions() -> tuple[type[Exception], ...]:
    """Return the exceptions that a failing store raises. MLflow passes some SQLAlchemy and Alembic errors through."""
    from alembic.util import CommandError
    from mlflow.exceptions import MlflowException
    from sqlalchemy.exc import SQLAlchemyError

    return MlflowException, SQLAlchemyError, CommandError, OSError


def missing_package(uri: str, error: ModuleNotFoundError) -> InputError:
    """Return the error for a store that needs a missing Python package, including the command that installs it.

    Raises `error` itself if it concerns one of our own modules.
    """
    module = str(error.name).partition(".")[0]
    if module == "accelsweep":
        raise error
    package = _PIP_NAMES.get(module, module)
    return InputError(f"MLflow at {masked(uri)} needs the Python package {module}: pip install {package}")


def permanent_error(uri: str, error: BaseException, experiment: str | None, sweep: str) -> AccelsweepError | None:
    """Return the error to raise, including its remedy, if retrying would not help, else None.

    `experiment` is the experiment being written, None if it does not exist yet; `sweep` is the sweep being published.
    """
    path = sqlite_path(uri)
    if path is not None and any(text in str(error) for text in _SQLITE_DAMAGED):
        return StoreDamaged(path, "MLflow's store is damaged", sweep)
    reason = (
        _schema_mismatch(uri, error, sweep)
        or _not_writable(uri, error)
        or _rejected_by_database(uri, error)
        or _not_mlflow(uri, error)
        or _rejected_by_server(uri, error, experiment)
    )
    return StoreUnavailable(f"{reason}. {_SAFE}") if reason else None


def reset_remedy(sweep: str) -> str:
    """Return the remedy for an unusable store."""
    return f"accelsweep publish {sweep} --anew moves it aside and fills a new one from the records"


def short_reason(error: BaseException) -> str:
    """Return a one-line cause of an error: the message of the database driver or operating system, if any."""
    driver_error = next((orig for link in _chain(error) if (orig := getattr(link, "orig", None)) is not None), error)
    text = str(driver_error).strip() or type(driver_error).__name__
    causes = [] if getattr(driver_error, "filename", None) else _ERRNO_TEXT.findall(text)
    return masked((causes[-1] if causes else text).splitlines()[0].strip())


def http_status(error: BaseException) -> int | None:
    """Return the HTTP status behind an error from MLflow's API or artifact uploads."""
    if code := _HTTP_CODES.get(str(getattr(error, "error_code", None))):
        return code
    if (status := getattr(getattr(error, "response", None), "status_code", None)) is not None:
        return int(status)
    match = _HTTP_STATUS.search(str(error))
    return int(match[1]) if match else None


def user_name(uri: str) -> str | None:
    """Return the user who publishes to `uri`: the one logged in to the server, else this machine's user, if known."""
    from mlflow.utils.credentials import read_mlflow_creds

    login = (urlsplit(uri).username or read_mlflow_creds().username) if is_server(uri) else None
    with contextlib.suppress(KeyError, OSError):  # the user in a container may not have a name
        return login or getpass.getuser()
    return None


def _schema_mismatch(uri: str, error: BaseException, sweep: str) -> str | None:
    """Recognise a database created by a different MLflow version."""
    text = str(error)
    if "out-of-date database schema" not in text and "Can't locate revision" not in text:
        return None
    match = _SCHEMA.search(text)
    revision = (match[1] or match[2]) if match else "unknown"
    spec = importlib.util.find_spec("mlflow")
    installed = Path(spec.origin).parent if spec is not None and spec.origin else Path()
    if any((installed / "store" / "db_migrations" / "versions").glob(f"{revision}_*.py")):
        age, remedy = "an older", f"python -m mlflow db upgrade {masked(uri)!r} upgrades it (back it up first)"
    else:
        age, remedy = "a newer", "pip install --upgrade mlflow"
    return (
        f"MLflow's store at {masked(uri)} was created by {age} version of MLflow than {version('mlflow')}: {remedy}, "
        f"or {reset_remedy(sweep)}"
    )


def _not_writable(uri: str, error: BaseException) -> str | None:
    """Recognise a SQLite file or an artifact folder that cannot be written to."""
    for link in _chain(error):
        if isinstance(link, OSError) and link.errno in DISK_ERRORS | _PATH_OCCUPIED and link.filename:
            return f"MLflow's store at {masked(uri)} cannot be written to: {describe_os_error(link)}"
    path = sqlite_path(uri)
    if path is None:
        return None
    reason = short_reason(error)
    if any(text in reason for text in _SQLITE_READ_ONLY):
        remedy = "Make the file and its folder writable, or name another store with --tracking-uri"
    elif any(text in reason for text in _SQLITE_FULL):
        remedy = "Free some space on its file system and repeat the command"
    else:
        return None
    return f"MLflow's store {path} cannot be written to: {reason}. {remedy}"


def _rejected_by_database(uri: str, error: BaseException) -> str | None:
    if "://" not in uri or urlsplit(uri).scheme.partition("+")[0] not in ("postgresql", "postgres", "mysql", "mssql"):
        return None
    reason = short_reason(error)
    if not any(text in reason.lower() for text in _DATABASE_REJECTIONS):
        return None
    return f"MLflow's database at {masked(uri)} rejected us: {reason}. Correct the URL, or ask the database admin"


def _not_mlflow(uri: str, error: BaseException) -> str | None:
    """Recognise a response from a login page or a different server rather than MLflow."""
    text, status = str(error), http_status(error)
    is_page = "not in a valid JSON format" in text or type(error).__name__ == "JSONDecodeError"
    answered_by_mlflow = type(error).__name__ == "RestException"
    if answered_by_mlflow or not (is_page or status in _HTTP_NOT_MLFLOW):
        return None
    answer = "a web page" if is_page else f"HTTP status {status}"
    if (match := _TITLE.search(text)) and (title := masked(" ".join(html.unescape(match[1]).split()))[:80]):
        answer += f" ({title!r})"
    return (
        f"the server at {masked(uri)} is not MLflow: it answered with {answer}. If it asks for a login first, set "
        f"{_LOGIN} that it accepts; otherwise correct the URL: it is the part before '#' in the browser's address bar"
    )


def _rejected_by_server(uri: str, error: BaseException, experiment: str | None) -> str | None:
    status, server = http_status(error), f"MLflow at {masked(uri)}"
    if status == HTTP_TOO_LARGE:
        return f"{server} rejected a request: {TOO_LARGE_REMEDY}"
    if status == 401:
        return (
            f"{server} rejected the login: no user {user_name(uri)!r} with this password, or no password was given. "
            f"Set {_LOGIN} of a user who may write there"
        )
    if status == 403 and "Invalid Host header" in str(error):
        host = urlsplit(uri).netloc.rpartition("@")[2]
        return f"{server} rejected the host name {host!r}. Start the server with --allowed-hosts {host}"
    if status == 403:
        user = user_name(uri)
        action = f"write to the experiment {experiment!r}" if experiment else "create an experiment"
        return (
            f"{server} rejected a request: user {user!r} may not {action}. Ask its owner or an admin to grant EDIT to "
            f"{user!r}, or set {_LOGIN} of a user who may"
        )
    return None


def _chain(error: BaseException) -> Iterator[BaseException]:
    """Yield an error and its causes, because MLflow wraps database errors."""
    seen: list[BaseException] = []
    cause: BaseException | None = error
    while cause is not None and cause not in seen:
        seen.append(cause)
        yield cause
        cause = cause.__cause__ or cause.__context__
