"""The reason why a store refused somebody or gave no answer, in one sentence: who, what, where, and what mends it."""

from __future__ import annotations

import errno
import importlib.util
import re
from collections.abc import Iterator
from html.parser import HTMLParser
from importlib.metadata import version
from pathlib import Path
from urllib.parse import urlsplit

from accelsweep.base.errors import REFUSALS, words_of
from accelsweep.base.secrets import masked
from accelsweep.publish.store.experiment import user_at
from accelsweep.publish.store.location import database_file

_UNKNOWN, _FORBIDDEN, TOO_LARGE = 401, 403, 413
_CODES = {"UNAUTHENTICATED": _UNKNOWN, "CUSTOMER_UNAUTHORIZED": _UNKNOWN, "PERMISSION_DENIED": _FORBIDDEN}
"""MLflow's names of the statuses of HTTP."""

_NOT_MLFLOW = (404, 405, 410, 501)
"""The statuses of a server that knows nothing of MLflow's API. Where MLflow itself answers so, it has a name for it."""

_WORDS = re.compile(r"\[Errno -?\d+\] ([^'\")\]>]+)")
_STATUS = re.compile(r"failed with error code (\d{3})\b")
_SCHEMA = re.compile(r"found version (\w+)|Can't locate revision identified by '(\w+)'")
_LOGIN = "MLFLOW_TRACKING_USERNAME and MLFLOW_TRACKING_PASSWORD, or MLFLOW_TRACKING_TOKEN,"
_SAFE = "All records are safe"

_IN_THE_WAY = frozenset({errno.ENOTDIR, errno.EEXIST, errno.EISDIR})
"""Errors of a path where something else stands."""

_READ_ONLY = ("readonly database", "unable to open database file", "access permission denied")
_FULL = ("database or disk is full", "disk I/O error")
"""SQLite's words where its file cannot be written to, and nothing but a person can change that."""

_REFUSED_BY_DATABASE = (
    "authentication failed",
    "Access denied",
    "permission denied",
    "does not exist",
    "Unknown database",
    "read-only transaction",
    "read-only mode",
    "No space left",
)
"""Words of PostgreSQL and MySQL that asking again does not change."""


def refusal(uri: str, error: BaseException, experiment: str | None, sweep: str) -> str | None:
    """Return the sentence where a store refused us: asking again would not help. None for any other `error`.

    `experiment` is the name of the one that was written to, where it is known; `sweep` the one that is copied.
    """
    found = _of_schema(uri, error, sweep) or _of_disk(uri, error) or _of_database(uri, error) or _of_page(uri, error)
    if found:
        return f"{found}. {_SAFE}"
    status = status_of(error)
    if status == TOO_LARGE:
        return f"MLflow at {masked(uri)} refused a request: {too_large_remedy()}. {_SAFE}"
    if status not in (_UNKNOWN, _FORBIDDEN):
        return None
    user = user_at(uri)
    if status == _UNKNOWN:
        return (
            f"MLflow at {masked(uri)} refused us: no user {user!r} with this password, or none was given. "
            f"Set {_LOGIN} of somebody who may write there. {_SAFE}"
        )
    if "Invalid Host header" in str(error):
        host = urlsplit(uri).netloc.rpartition("@")[2]
        return (
            f"MLflow at {masked(uri)} refused us: it does not answer to the name {host!r}. "
            f"Start its server with --allowed-hosts {host}. {_SAFE}"
        )
    what = f"write to the experiment {experiment!r}" if experiment else "make an experiment"
    return (
        f"MLflow at {masked(uri)} refused us: {user!r} may not {what}. "
        f"Let its owner or an admin grant EDIT to {user!r}, or set {_LOGIN} of somebody who may. {_SAFE}"
    )


def too_large_remedy() -> str:
    """Return what mends an answer 413."""
    return "a proxy in front of it takes none of this size (413): raise its limit (nginx: client_max_body_size 64m)"


def anew(sweep: str) -> str:
    """Return what fills a store again that is of no use any more."""
    return f"accelsweep publish {sweep} --anew sets it aside and fills a new one from the records"


def why(error: BaseException) -> str:
    """Return in short what went wrong: the words of the database's driver or of the system, else the first line."""
    told = next((one for one in _chain(error) if hasattr(one, "orig")), None)
    orig = getattr(told, "orig", None) or error
    text = str(orig).strip() or type(orig).__name__
    found = [] if getattr(orig, "filename", None) else _WORDS.findall(text)
    return masked((found[-1] if found else text).splitlines()[0].strip())


def status_of(error: BaseException) -> int | None:
    """Return the status of HTTP that a refusal had; artifacts are sent past MLflow's own errors."""
    if code := _CODES.get(str(getattr(error, "error_code", None))):
        return code
    if (status := getattr(getattr(error, "response", None), "status_code", None)) is not None:
        return int(status)
    found = _STATUS.search(str(error))
    return int(found[1]) if found else None


def _of_schema(uri: str, error: BaseException, sweep: str) -> str | None:
    """Return what to do with the database of another version of MLflow."""
    text = str(error)
    if "out-of-date database schema" not in text and "Can't locate revision" not in text:
        return None
    found = _SCHEMA.search(text)
    revision = (found[1] or found[2]) if found else "unknown"
    spec = importlib.util.find_spec("mlflow")
    installed = Path(spec.origin).parent if spec is not None and spec.origin else Path()
    if any((installed / "store" / "db_migrations" / "versions").glob(f"{revision}_*.py")):
        age, remedy = "an older", f"python -m mlflow db upgrade {masked(uri)!r} brings it up to date (back it up first)"
    else:
        age, remedy = "a newer", "pip install --upgrade mlflow"
    return (
        f"MLflow's store at {masked(uri)} was made by {age} version of MLflow than {version('mlflow')}: {remedy}, or "
        f"{anew(sweep)}"
    )


def _of_disk(uri: str, error: BaseException) -> str | None:
    """Return what to do where the file of a store, or the folder of its artifacts, cannot be written to."""
    for one in _chain(error):
        if isinstance(one, OSError) and one.errno in REFUSALS | _IN_THE_WAY and one.filename:
            return f"MLflow's store at {masked(uri)} cannot be written to: {words_of(one)}"
    path = database_file(uri)
    if path is None:
        return None
    said = why(error)
    if any(word in said for word in _READ_ONLY):
        remedy = "Make the file and its folder writable, or name another store with --tracking-uri"
    elif any(word in said for word in _FULL):
        remedy = "Make room on its file system, and the same command goes on"
    else:
        return None
    return f"MLflow's store {path} cannot be written to: {said}. {remedy}"


def _of_database(uri: str, error: BaseException) -> str | None:
    """Return the words by which the server of a database refused us."""
    if "://" not in uri or urlsplit(uri).scheme.partition("+")[0] not in ("postgresql", "postgres", "mysql", "mssql"):
        return None
    said = why(error)
    if not any(word.lower() in said.lower() for word in _REFUSED_BY_DATABASE):
        return None
    return (
        f"MLflow's database at {masked(uri)} refused us: {said}. Correct the address, or have an admin of it mend that"
    )


def _of_page(uri: str, error: BaseException) -> str | None:
    """Return what to do where something else than MLflow answered: a login page, or another server."""
    text = str(error)
    status = status_of(error)
    named = type(error).__name__ == "RestException"  # MLflow's own answer, in JSON
    is_page = "not in a valid JSON format" in text or type(error).__name__ == "JSONDecodeError"
    if named or not (is_page or status in _NOT_MLFLOW):
        return None
    title = _title(text)
    answer = "a web page" if is_page else f"an error {status}"
    answer += f" ({title!r})" if title else ""
    return (
        f"MLflow at {masked(uri)} did not answer, {answer} came instead. Where a login stands in "
        f"front of it, set {_LOGIN} that it takes; else correct the address: in the browser, it is what precedes '#'"
    )


def _title(page: str) -> str | None:
    parser = _Title()
    parser.feed(page)
    return masked(" ".join(parser.title.split()))[:80] or None


class _Title(HTMLParser):
    """Reads the title of a page."""

    def __init__(self) -> None:
        super().__init__()
        self.title = ""
        self._inside = False

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:  # noqa: ARG002
        self._inside = tag == "title"

    def handle_data(self, data: str) -> None:
        self.title += data if self._inside else ""

    def handle_endtag(self, tag: str) -> None:  # noqa: ARG002
        self._inside = False


def _chain(error: BaseException) -> Iterator[BaseException]:
    """Yield an error and the ones behind it: MLflow wraps those of its database."""
    seen: list[BaseException] = []
    while error not in seen:
        seen.append(error)
        yield error
        behind = error.__cause__ or error.__context__
        if behind is None:
            return
        error = behind
