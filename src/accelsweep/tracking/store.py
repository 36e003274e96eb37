"""The MLflow store of a sweep: made once without a race, and asked for its content.

MLflow's first-time migration of a SQLite file is not guarded against a second process. So the file is made under a
temporary name and linked into place when it is complete. The first process wins, and no other opens a half-made file.
Somebody else, such as a run's own logger, makes the file in its place. Then we wait for its end.
"""

from __future__ import annotations

import accelsweep.tracking.mlflow_settings  # noqa: F401 - before mlflow

# isort: split
import contextlib
import errno
import getpass
import importlib.util
import logging
import os
import re
import sqlite3
import tempfile
import time
import uuid
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from html.parser import HTMLParser
from importlib.metadata import version
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, ClassVar
from urllib.parse import urlsplit

from pydantic import Field

from accelsweep.errors import REFUSALS, DamagedFile, InputError, words_of
from accelsweep.json_documents import Document, is_occupied, put_in_place
from accelsweep.records.cleanup import NEW_DATABASE, sweep_up_databases
from accelsweep.records.layout import SweepFolder
from accelsweep.redaction import masked
from accelsweep.tracking.mlflow_run import CREATED, KEY, NOTE, PARENT, PUBLISHED, SOURCE
from accelsweep.tracking.sweep_snapshot import (
    ARTIFACTS,
    artifact_location,
    database_file,
    file_address,
    is_server,
    refuse_without_locks,
)

if TYPE_CHECKING:
    from mlflow import MlflowClient
    from mlflow.entities import Experiment, Run


# A database as the store: asked once before MLflow asks it, and used by one publisher while MLflow makes tables.

_LOCK = int.from_bytes(b"accelswp", "big")
"""The number of our advisory lock. PostgreSQL's are any 64 bits that the users of a database agree on."""


@contextmanager
def alone_in_database(uri: str) -> Iterator[None]:
    """Keep other publishers out of a PostgreSQL database meanwhile; of another database, only see that it answers.

    MLflow's making of its tables is guarded against processes of the same machine only, and not to its end. Where the
    database does not answer, MLflow asks ten times, for 100 seconds. So this asks first. Raises ConnectionError where
    the database does not answer, or is changed by another publisher all the same.
    """
    import sqlalchemy

    try:
        with sqlalchemy.create_engine(uri, poolclass=sqlalchemy.NullPool).connect() as connection:
            if connection.dialect.name == "postgresql":
                connection.execute(sqlalchemy.select(sqlalchemy.func.pg_advisory_lock(_LOCK)))
            yield  # the lock ends with the connection
    except sqlalchemy.exc.SQLAlchemyError as error:
        raise ConnectionError(str(getattr(error, "orig", None) or error).splitlines()[0]) from error


def ask_file(uri: str) -> None:
    """See that the file of a SQLite store can be read: MLflow would ask ten times, for 100 seconds.

    Raises SQLAlchemyError where it cannot. One that another process has locked is left to MLflow, which waits.
    """
    import sqlalchemy

    try:
        with sqlalchemy.create_engine(uri, poolclass=sqlalchemy.NullPool).connect() as connection:
            connection.exec_driver_sql("select count(*) from sqlite_master")
    except sqlalchemy.exc.OperationalError as error:
        if "locked" not in str(error.orig):
            raise


# The owner of an experiment: several people publish sweeps of one name to a store, each into one of their own.

SWEEP = "accelsweep.sweep"
"""The experiment's tag for the mark of the sweep that it belongs to."""

FIRST_NOTE = (
    "A sweep of accelsweep: every run is a setting, its children are the setting's repeats, and "
    "`report (revision N)` holds the report."
)

_TAGS = {
    "mlflow.experimentKind": "custom_model_development",  # the UI then shows runs first, not traces
    NOTE: FIRST_NOTE,
}

_PAGE = 1000

_MOST_NAMES = 50


class SweepMark(Document):
    """The random mark of a sweep's folder, which tells it from others of the same name in a store."""

    kind: ClassVar[str] = "mark"

    mark: Annotated[str, Field(pattern="^[0-9a-f]{32}$")]


def experiment_of(client: MlflowClient, folder: SweepFolder, uri: str, records: Collection[str]) -> Experiment:
    """Return the sweep's experiment in the store at `uri`, made where there is none, restored where it was deleted.

    `records` are the SHA-256 sums of the sweep's records. Raises InputError if other sweeps have all its names.
    """
    if database_file(uri) is not None:  # it belongs to its folder, and so does every experiment in it
        experiment = _named(client, folder.name) or _made(client, folder, folder.name, uri, {})
    else:
        experiment = _own(client, folder, uri, frozenset(records))
    if experiment.lifecycle_stage == "deleted":
        client.restore_experiment(experiment.experiment_id)
    return experiment


def all_runs(client: MlflowClient, experiment_id: str, *, deleted: bool = False) -> Iterator[Run]:
    """Yield the active runs of an experiment, with `deleted` those too that were deleted."""
    from mlflow.entities import ViewType

    token, view = None, ViewType.ALL if deleted else ViewType.ACTIVE_ONLY
    while True:
        page = client.search_runs([experiment_id], "", view, max_results=_PAGE, page_token=token)
        yield from page
        token = page.token
        if not token:
            return


def mark_of(folder: SweepFolder) -> str:
    """Return the sweep's mark, made at its first use; publishers that begin together get the same one.

    It holds the sweep's name, because the folder of a sweep may be copied under another name.
    """
    if not folder.mark.exists():
        with tempfile.TemporaryDirectory(dir=folder.root, prefix=".mark.") as own:
            made = Path(own) / folder.mark.name
            SweepMark(mark=uuid.uuid4().hex).write(made)
            with contextlib.suppress(FileExistsError):
                put_in_place(made, folder.mark)
    return f"{folder.name} {SweepMark.read(folder.mark).mark}"


def _own(client: MlflowClient, folder: SweepFolder, uri: str, records: frozenset[str]) -> Experiment:
    from mlflow.entities import ViewType
    from mlflow.exceptions import MlflowException

    mark = mark_of(folder)
    marked = client.search_experiments(view_type=ViewType.ALL, filter_string=f"tags.`{SWEEP}` = '{mark}'")
    if marked:  # under whatever name, since an experiment can be renamed
        return marked[0]
    names = list(_names(folder.name, uri))
    for name in names:
        try:
            found = _named(client, name)
        except MlflowException as error:
            if error.error_code != "PERMISSION_DENIED":
                raise
            continue  # it is there, and we may not even see it
        experiment = found or _made(client, folder, name, uri, {SWEEP: mark})
        if experiment.tags.get(SWEEP) == mark or _holds(client, experiment, records):
            return experiment
        if _is_new(client, experiment):
            client.set_experiment_tag(experiment.experiment_id, SWEEP, mark)
            return client.get_experiment(experiment.experiment_id)
    raise InputError(
        f"the experiments {names[0]!r} to {names[-1]!r} at {masked(uri)} belong to other sweeps. "
        "Give the sweep another name (name=...)"
    )


def _names(name: str, uri: str) -> Iterator[str]:
    """Yield the names that a sweep's experiment may have: the sweep's, with the user's beside it, with numbers."""
    yield name
    user = user_at(uri)
    own = f"{name}-{user}" if user else name
    if user:
        yield own
    yield from (f"{own}-{number}" for number in range(2, _MOST_NAMES))


def user_at(uri: str) -> str | None:
    """Return who publishes to `uri`: the user that a server is told, else the one of this machine, where known."""
    from mlflow.utils.credentials import read_mlflow_creds

    told = (urlsplit(uri).username or read_mlflow_creds().username) if is_server(uri) else None
    with contextlib.suppress(KeyError, OSError):  # a container's user may have no name
        return told or getpass.getuser()
    return None


def _holds(client: MlflowClient, experiment: Experiment, records: frozenset[str]) -> bool:
    """Return whether one of our records stands there: so it is a copy of this sweep, made from another folder."""
    runs = all_runs(client, experiment.experiment_id, deleted=True)
    return any(run.data.tags.get(SOURCE) in records for run in runs)


def _is_new(client: MlflowClient, experiment: Experiment) -> bool:
    """Return whether nobody has the experiment: somebody made it by hand, as for a user who may not make any."""
    if SWEEP in experiment.tags or experiment.lifecycle_stage == "deleted":
        return False
    return next(all_runs(client, experiment.experiment_id, deleted=True), None) is None


def _named(client: MlflowClient, name: str) -> Experiment | None:
    return client.get_experiment_by_name(name)


def _made(client: MlflowClient, folder: SweepFolder, name: str, uri: str, tags: dict[str, str]) -> Experiment:
    """Make the experiment, and return it, or the one of this name that another publisher made before."""
    from mlflow.exceptions import MlflowException

    try:
        client.create_experiment(name, artifact_location(folder, uri), tags=_TAGS | tags)
    except MlflowException:
        if _named(client, name) is None:  # else another publisher was faster
            raise
    experiment = _named(client, name)
    assert experiment is not None
    return experiment


# The reason why a store refused somebody or gave no answer, in one sentence: who, what, where, and what mends it.

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


_DAMAGE = ("malformed", "not a database", "unsupported file format")
"""SQLite's words for a file that it can never read, and for nothing else."""

_MAKING_SECONDS = 60.0

_STILL_SECONDS = 5.0
"""A file that is being made changes more often."""


class StoreDamaged(DamagedFile):
    """The file of a SQLite store cannot be read. It may hold more than our copies, so it is left alone."""

    def __init__(self, path: Path, why: str, sweep: str = "NAME") -> None:
        """`path` is the file, `why` its fault, `sweep` the one that was to be copied."""
        super().__init__(path, f"{why}; {anew(sweep)}. All records are safe")


def store_errors() -> tuple[type[Exception], ...]:
    """Return what a store raises that does not answer. MLflow lets some errors of its database's driver through."""
    from alembic.util import CommandError
    from mlflow.exceptions import MlflowException
    from sqlalchemy.exc import SQLAlchemyError

    return MlflowException, SQLAlchemyError, CommandError, OSError


def refuse_damaged(uri: str, error: Exception, sweep: str) -> None:
    """Raise StoreDamaged if `error` says that the database at `uri` is damaged: asking again would not help."""
    path = database_file(uri)
    if path is not None and any(word in str(error) for word in _DAMAGE):
        raise StoreDamaged(path, "MLflow's store is damaged", sweep) from error


def set_aside(path: Path) -> Path:
    """Give the file of a SQLite store another name beside it, with what SQLite has beside it; return the new path."""
    aside = next(one for n in count(1) if not os.path.lexists(one := path.with_name(f"{path.name}.{n}")))
    path.rename(aside)
    for ending in ("-journal", "-wal", "-shm"):
        with contextlib.suppress(FileNotFoundError):
            Path(f"{path}{ending}").rename(f"{aside}{ending}")
    return aside


@dataclass(frozen=True)
class StoredRun:
    """A run of ours as the store holds it. `started` is in milliseconds since 1970, `artifacts` where its files lie."""

    run_id: str
    key: str
    name: str
    source: str
    published: str | None
    created: str
    artifacts: str
    status: str
    started: int
    parent_id: str | None
    params: frozenset[str]
    metrics: frozenset[str]
    tags: frozenset[str]


class Store:
    """One experiment of one MLflow store."""

    def __init__(self, client: MlflowClient, experiment: Experiment, uri: str) -> None:
        """Use `connect`."""
        self.client = client
        self.experiment_id: str = experiment.experiment_id
        self.experiment: str = experiment.name
        self.tags: Mapping[str, str] = experiment.tags
        self.uri = uri

    def look(self) -> dict[str, list[StoredRun]]:
        """Return our active runs in the store by key, the oldest first, so that every publisher keeps the same one."""
        entries: dict[str, list[StoredRun]] = {}
        for run in all_runs(self.client, self.experiment_id):
            if KEY in run.data.tags:
                entries.setdefault(run.data.tags[KEY], []).append(_entry(run))
        for same in entries.values():
            same.sort(key=lambda entry: (entry.created, entry.run_id))
        return entries


def connect(folder: SweepFolder, uri: str, records: Collection[str] = ()) -> Store:
    """Return the sweep's experiment in the store at `uri`, making both where they do not exist.

    `records` are the SHA-256 sums of the sweep's records, which tell it from another sweep of its name. Raises mlflow's
    MlflowException or OSError when the store does not answer.
    """
    from mlflow import MlflowClient

    create_database(uri, folder.home, folder.name)
    if database_file(uri):
        ask_file(uri)
    with contextlib.nullcontext() if is_server(uri) or database_file(uri) else alone_in_database(uri):
        client = MlflowClient(tracking_uri=uri)
        return Store(client, experiment_of(client, folder, uri, records), uri)


def create_database(uri: str, home: Path, sweep: str = "NAME") -> None:
    """Make the file of a SQLite store if there is none, whole or not at all. Makes nothing for any other store.

    Raises StoreDamaged where something else stands in its place, InputError on a disk without file locks.
    """
    _quiet()
    path = database_file(uri)
    if path is None:
        return
    sweep_up_databases(path)
    if is_occupied(path):  # before it is opened: a FIFO waits for its writer there
        raise StoreDamaged(path, "it is no file: something else stands in its place", sweep)
    if path.exists():
        _wait_for_maker(path)
        return
    from mlflow.store.tracking.sqlalchemy_store import SqlAlchemyStore

    path.parent.mkdir(parents=True, exist_ok=True)
    refuse_without_locks(uri)
    with tempfile.TemporaryDirectory(dir=path.parent, prefix=f".{path.name}.") as folder:
        made = Path(folder) / NEW_DATABASE
        made.touch()  # SQLite would close it to the group; its journals get the permissions of the file
        store = SqlAlchemyStore(  # type: ignore[no-untyped-call]  # mlflow has no type hints there
            file_address(made), (home.resolve() / ARTIFACTS).as_uri()
        )
        store.engine.dispose()
        try:
            put_in_place(made, path)
        except FileExistsError:
            _wait_for_maker(path)


def _wait_for_maker(path: Path) -> None:
    """Wait while somebody else makes the file: two migrations at once spoil both."""
    deadline = time.monotonic() + _MAKING_SECONDS
    while _is_half_made(path) and time.monotonic() < deadline:
        time.sleep(0.1)


def _is_half_made(path: Path) -> bool:
    """Return whether the file changed lately, and has no experiment yet. MLflow makes the first one last."""
    if time.time() - path.stat().st_mtime > _STILL_SECONDS:
        return False
    try:
        with contextlib.closing(sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True)) as database:
            (known,) = database.execute("SELECT count(*) FROM experiments").fetchone()
    except sqlite3.DatabaseError as error:
        return "no such table" in str(error) or "locked" in str(error)
    return int(known) == 0


def _quiet() -> None:
    """Leave it to the publisher to tell what a database refuses. Otherwise each of some 50 migrations is announced."""
    for noisy in ("alembic", "mlflow.store.db"):
        logging.getLogger(noisy).setLevel(logging.WARNING)
    logging.getLogger("mlflow.store.db.utils").setLevel(logging.CRITICAL)  # it logs each failed query with a traceback


def _entry(run: Run) -> StoredRun:
    tags = run.data.tags
    return StoredRun(
        run_id=run.info.run_id,
        key=tags[KEY],
        name=run.info.run_name,
        source=tags.get(SOURCE, ""),
        published=tags.get(PUBLISHED),
        created=tags.get(CREATED, ""),
        artifacts=run.info.artifact_uri,
        status=run.info.status,
        started=run.info.start_time,
        parent_id=tags.get(PARENT),
        params=frozenset(run.data.params),
        metrics=frozenset(run.data.metrics),
        tags=frozenset(tags),
    )
