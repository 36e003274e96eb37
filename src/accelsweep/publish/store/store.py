"""The MLflow store of a sweep: made once without a race, and asked for its content.

MLflow's first-time migration of a SQLite file is not guarded against a second process. So the file is made under a
temporary name and linked into place when it is complete. The first process wins, and no other opens a half-made file.
Somebody else, such as a run's own logger, makes the file in its place. Then we wait for its end.
"""

from __future__ import annotations

import accelsweep.publish.store.mlflow_settings  # noqa: F401 - before mlflow

# isort: split
import contextlib
import logging
import os
import sqlite3
import tempfile
import time
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING

from accelsweep.base.documents import is_occupied, put_in_place
from accelsweep.base.errors import DamagedFile
from accelsweep.publish.runs.wanted import CREATED, KEY, PARENT, PUBLISHED, SOURCE
from accelsweep.publish.store.database import alone_in_database, ask_file
from accelsweep.publish.store.experiment import all_runs, experiment_of
from accelsweep.publish.store.location import (
    ARTIFACTS,
    database_file,
    file_address,
    is_server,
    refuse_without_locks,
)
from accelsweep.publish.store.refusals import anew
from accelsweep.state.folders import SweepFolder
from accelsweep.state.leftovers import NEW_DATABASE, sweep_up_databases

if TYPE_CHECKING:
    from mlflow import MlflowClient
    from mlflow.entities import Experiment, Run

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
