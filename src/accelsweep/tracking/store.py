"""Opens an MLflow store and the sweep's experiment, creating both if needed, safely alongside other publishers."""

from __future__ import annotations

import accelsweep.tracking.mlflow_settings  # noqa: F401 - before mlflow

# isort: split
import contextlib
import logging
import os
import sqlite3
import tempfile
import time
import uuid
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, ClassVar

from pydantic import Field

from accelsweep.errors import InputError
from accelsweep.files import create_exclusively, is_non_file
from accelsweep.json_documents import Document
from accelsweep.records.cleanup import NEW_DATABASE, remove_stale_databases
from accelsweep.records.layout import SweepFolder
from accelsweep.redaction import masked
from accelsweep.tracking.mlflow_run import CREATED_TAG, KEY_TAG, NOTE_TAG, PARENT_TAG, PUBLISHED_TAG, SOURCE_TAG
from accelsweep.tracking.store_errors import StoreDamaged, user_name
from accelsweep.tracking.store_uri import (
    ARTIFACTS,
    artifact_location,
    is_server,
    require_file_locks,
    sqlite_path,
    sqlite_uri,
)

if TYPE_CHECKING:
    from mlflow import MlflowClient
    from mlflow.entities import Experiment, Run

SWEEP_TAG = "accelsweep.sweep"
"""The experiment tag that stores the ID of the sweep that owns the experiment."""

DEFAULT_NOTE = (
    "A sweep of accelsweep: every run is a setting, its children are the setting's repeats, and "
    "`report (revision N)` holds the report."
)

_EXPERIMENT_TAGS = {
    "mlflow.experimentKind": "custom_model_development",  # makes the UI open the runs tab, not the traces tab
    NOTE_TAG: DEFAULT_NOTE,
}
_PAGE_SIZE = 1000
_MAX_NAMES = 50
_MIGRATION_SECONDS = 60.0
_IDLE_SECONDS = 5.0  # a database file changes more often than this while it is being created
_ADVISORY_LOCK = int.from_bytes(b"accelswp", "big")  # an arbitrary 64-bit number that all publishers share


@dataclass(frozen=True)
class StoredRun:
    """One of our runs in the store. `started` is in milliseconds since 1970; `artifacts` is its artifact URI."""

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
    params: frozenset[str] = frozenset()
    metrics: frozenset[str] = frozenset()
    tags: frozenset[str] = frozenset()


class Store:
    """One experiment in an MLflow store, as returned by `connect`."""

    def __init__(self, client: MlflowClient, experiment: Experiment, uri: str) -> None:
        self.client = client
        self.experiment_id: str = experiment.experiment_id
        self.experiment: str = experiment.name
        self.tags: Mapping[str, str] = experiment.tags
        self.uri = uri

    def list_runs(self) -> dict[str, list[StoredRun]]:
        """Return our active runs by key, oldest first, so that concurrent publishers keep the same duplicate."""
        runs: dict[str, list[StoredRun]] = {}
        for run in _search_runs(self.client, self.experiment_id):
            if KEY_TAG in run.data.tags:
                runs.setdefault(run.data.tags[KEY_TAG], []).append(_stored_run(run))
        for duplicates in runs.values():
            duplicates.sort(key=lambda run: (run.created, run.run_id))
        return runs


def connect(folder: SweepFolder, uri: str, records: Collection[str] = ()) -> Store:
    """Return the sweep's experiment in the store at `uri`, creating both if needed.

    `records` contains the SHA-256 digests of the sweep's records, which identify a copy published from another folder.
    Raises MLflow's MlflowException or an OSError if the store does not respond.
    """
    from mlflow import MlflowClient

    create_database(uri, folder.home, folder.name)
    if sqlite_path(uri):
        _check_sqlite(uri)
    with contextlib.nullcontext() if is_server(uri) or sqlite_path(uri) else _database_lock(uri):
        client = MlflowClient(tracking_uri=uri)
        return Store(client, get_or_create_experiment(client, folder, uri, records), uri)


def get_or_create_experiment(
    client: MlflowClient, folder: SweepFolder, uri: str, records: Collection[str]
) -> Experiment:
    """Return the sweep's experiment, created or restored if needed.

    Raises InputError if other sweeps own all candidate names. A SQLite file serves a single folder, so the sweep's name
    identifies the experiment. Other stores are shared: the sweep is identified by an ID, and its experiment is given
    the first name that no other sweep owns.
    """
    if sqlite_path(uri) is not None:
        existing = client.get_experiment_by_name(folder.name)
        experiment = existing or _create_experiment(client, folder, folder.name, uri, {})
    else:
        experiment = _own_experiment(client, folder, uri, records)
    if experiment.lifecycle_stage == "deleted":
        client.restore_experiment(experiment.experiment_id)
    return experiment


class SweepMark(Document):
    """The random ID of a sweep's folder, which distinguishes sweeps with the same name in a shared store."""

    kind: ClassVar[str] = "mark"

    mark: Annotated[str, Field(pattern="^[0-9a-f]{32}$")]


def sweep_mark(folder: SweepFolder) -> str:
    """Return the sweep's ID, created on first use and shared by concurrent publishers.

    The ID includes the sweep's name, because the folder may be copied under another name.
    """
    if not folder.mark.exists():
        with tempfile.TemporaryDirectory(dir=folder.root, prefix=".mark.") as temporary:
            new = Path(temporary) / folder.mark.name
            SweepMark(mark=uuid.uuid4().hex).write(new)
            with contextlib.suppress(FileExistsError):
                create_exclusively(new, folder.mark)
    return f"{folder.name} {SweepMark.read(folder.mark).mark}"


def _own_experiment(client: MlflowClient, folder: SweepFolder, uri: str, records: Collection[str]) -> Experiment:
    from mlflow.entities import ViewType
    from mlflow.exceptions import MlflowException

    mark, digests = sweep_mark(folder), frozenset(records)
    marked = client.search_experiments(view_type=ViewType.ALL, filter_string=f"tags.`{SWEEP_TAG}` = '{mark}'")
    if marked:  # the experiment may have been renamed
        return marked[0]
    user = user_name(uri)
    base = f"{folder.name}-{user}" if user else folder.name
    names = list(dict.fromkeys([folder.name, base, *(f"{base}-{number}" for number in range(2, _MAX_NAMES))]))
    for name in names:
        try:
            existing = client.get_experiment_by_name(name)
        except MlflowException as error:
            if error.error_code != "PERMISSION_DENIED":
                raise
            continue  # it exists, but we have no permission to read it
        experiment = existing or _create_experiment(client, folder, name, uri, {SWEEP_TAG: mark})
        if experiment.tags.get(SWEEP_TAG) == mark:
            return experiment
        is_empty = True
        for run in _search_runs(client, experiment.experiment_id, deleted=True):
            if run.data.tags.get(SOURCE_TAG) in digests:
                return experiment
            is_empty = False
        if is_empty and SWEEP_TAG not in experiment.tags and experiment.lifecycle_stage != "deleted":
            # created manually and still empty, perhaps for a user without permission to create experiments
            client.set_experiment_tag(experiment.experiment_id, SWEEP_TAG, mark)
            return client.get_experiment(experiment.experiment_id)
    raise InputError(
        f"the experiments {names[0]!r} to {names[-1]!r} at {masked(uri)} belong to other sweeps. "
        "Choose another name for the sweep (name=...)"
    )


def _create_experiment(
    client: MlflowClient, folder: SweepFolder, name: str, uri: str, tags: dict[str, str]
) -> Experiment:
    """Return the new experiment, or the one that another publisher created under this name at the same time."""
    from mlflow.exceptions import MlflowException

    try:
        client.create_experiment(name, artifact_location(folder, uri), tags=_EXPERIMENT_TAGS | tags)
    except MlflowException:
        if client.get_experiment_by_name(name) is None:
            raise
    experiment = client.get_experiment_by_name(name)
    assert experiment is not None
    return experiment


def _search_runs(client: MlflowClient, experiment_id: str, *, deleted: bool = False) -> Iterator[Run]:
    """Yield an experiment's active runs and, on request, its deleted runs."""
    from mlflow.entities import ViewType

    token, view = None, ViewType.ALL if deleted else ViewType.ACTIVE_ONLY
    while True:
        page = client.search_runs([experiment_id], "", view, max_results=_PAGE_SIZE, page_token=token)
        yield from page
        token = page.token
        if not token:
            return


def _stored_run(run: Run) -> StoredRun:
    tags = run.data.tags
    return StoredRun(
        run_id=run.info.run_id,
        key=tags[KEY_TAG],
        name=run.info.run_name,
        source=tags.get(SOURCE_TAG, ""),
        published=tags.get(PUBLISHED_TAG),
        created=tags.get(CREATED_TAG, ""),
        artifacts=run.info.artifact_uri,
        status=run.info.status,
        started=run.info.start_time,
        parent_id=tags.get(PARENT_TAG),
        params=frozenset(run.data.params),
        metrics=frozenset(run.data.metrics),
        tags=frozenset(tags),
    )


def create_database(uri: str, home: Path, sweep: str = "NAME") -> None:
    """Atomically create the file of a SQLite store if it does not exist. Does nothing for any other store.

    MLflow does not protect its first migration of a SQLite file against concurrent processes. The file is therefore
    created under a temporary name and linked into place once complete. If another process, such as a run's own logger,
    is creating the file in place, this function waits for it. Raises StoreDamaged if the path is not a regular file,
    and InputError on a file system that does not support file locking.
    """
    for logger in ("alembic", "mlflow.store.db"):
        logging.getLogger(logger).setLevel(logging.WARNING)  # otherwise each of about 50 migrations is logged
    logging.getLogger("mlflow.store.db.utils").setLevel(logging.CRITICAL)  # otherwise failed queries log tracebacks
    path = sqlite_path(uri)
    if path is None:
        return
    remove_stale_databases(path)
    if is_non_file(path):  # opening a FIFO would block
        raise StoreDamaged(path, "it is not a regular file", sweep)
    if path.exists():
        _wait_for_migration(path)
        return
    from mlflow.store.tracking.sqlalchemy_store import SqlAlchemyStore

    path.parent.mkdir(parents=True, exist_ok=True)
    require_file_locks(uri)
    with tempfile.TemporaryDirectory(dir=path.parent, prefix=f".{path.name}.") as temporary:
        new = Path(temporary) / NEW_DATABASE
        new.touch()  # SQLite creates files without group write permission; its journals inherit the file's permissions
        store = SqlAlchemyStore(  # type: ignore[no-untyped-call]  # mlflow has no type hints there
            sqlite_uri(new), (home.resolve() / ARTIFACTS).as_uri()
        )
        store.engine.dispose()
        try:
            create_exclusively(new, path)
        except FileExistsError:
            _wait_for_migration(path)


def move_aside(path: Path) -> Path:
    """Rename a SQLite file and its journals to an unused name in the same folder, and return the new path."""
    aside = next(new for n in count(1) if not os.path.lexists(new := path.with_name(f"{path.name}.{n}")))
    path.rename(aside)
    for suffix in ("-journal", "-wal", "-shm"):
        with contextlib.suppress(FileNotFoundError):
            Path(f"{path}{suffix}").rename(f"{aside}{suffix}")
    return aside


def _wait_for_migration(path: Path) -> None:
    """Wait while another process creates the tables: two simultaneous migrations corrupt the file."""
    deadline = time.monotonic() + _MIGRATION_SECONDS
    while _is_being_created(path) and time.monotonic() < deadline:
        time.sleep(0.1)


def _is_being_created(path: Path) -> bool:
    """Return whether the file changed recently and contains no experiment yet, which MLflow creates last."""
    if time.time() - path.stat().st_mtime > _IDLE_SECONDS:
        return False
    try:
        with contextlib.closing(sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True)) as database:
            (experiments,) = database.execute("SELECT count(*) FROM experiments").fetchone()
    except sqlite3.DatabaseError as error:
        return "no such table" in str(error) or "locked" in str(error)
    return int(experiments) == 0


def _check_sqlite(uri: str) -> None:
    """Raise SQLAlchemyError if a SQLite file cannot be read, since MLflow would retry for 100 seconds.

    A locked file is not an error, because MLflow itself waits for the lock.
    """
    import sqlalchemy

    try:
        with sqlalchemy.create_engine(uri, poolclass=sqlalchemy.NullPool).connect() as connection:
            connection.exec_driver_sql("select count(*) from sqlite_master")
    except sqlalchemy.exc.OperationalError as error:
        if "locked" not in str(error.orig):
            raise


@contextlib.contextmanager
def _database_lock(uri: str) -> Iterator[None]:
    """Lock out other publishers, and check that the database responds, since MLflow would retry for 100 seconds.

    MLflow guards table creation only against processes on the same machine. The lock is a PostgreSQL advisory lock;
    other databases are only checked. Raises ConnectionError if the database does not respond, or if another publisher
    changed it concurrently.
    """
    import sqlalchemy

    try:
        with sqlalchemy.create_engine(uri, poolclass=sqlalchemy.NullPool).connect() as connection:
            if connection.dialect.name == "postgresql":
                connection.execute(sqlalchemy.select(sqlalchemy.func.pg_advisory_lock(_ADVISORY_LOCK)))
            yield  # the lock is released when the connection closes
    except sqlalchemy.exc.SQLAlchemyError as error:
        raise ConnectionError(str(getattr(error, "orig", None) or error).splitlines()[0]) from error
