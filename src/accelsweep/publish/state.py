"""The copies of a sweep in stores, noted beside the records, so that mlflow is not imported when nothing changed."""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Mapping
from pathlib import Path
from typing import ClassVar

from accelsweep.base.documents import Document, Frozen, sha256_file
from accelsweep.base.errors import DamagedFile
from accelsweep.base.secrets import masked
from accelsweep.core.planned.plans import Manifest, Run
from accelsweep.publish.snapshot import report_digest, run_digest
from accelsweep.publish.store.location import database_file, resolve
from accelsweep.state.file_names import PUBLISHED_FILE, SWEEPS_FOLDER
from accelsweep.state.folders import SweepFolder


class Copied(Frozen):
    """One store's copy of a sweep: the digest of each repeat, and that of report, findings and plan together.

    The publisher of 0.1.0 wrote no saved views. The next command completes its copies.
    """

    experiment_id: str
    active_runs: int
    records: dict[str, str]
    report: str
    views: bool = False


class PublishedState(Document):
    """The stores that a sweep was copied to, by their address without its secrets."""

    kind: ClassVar[str] = "published"

    stores: dict[str, Copied]


def up_to_date(folder: SweepFolder, tracking_uri: str | None = None) -> bool:
    """Return whether the store holds the whole content of the folder, without importing mlflow.

    A SQLite store is asked whether it still has the experiment and its runs; a server is trusted.
    """
    uri = resolve(folder.home, tracking_uri)
    copied = _read(folder).get(masked(uri))
    if copied is None or not copied.views:
        return False
    if copied.records != _repeats(folder) or copied.report != report_digest(folder):
        return False
    return _still_there(uri, copied)


def surely_up_to_date(folder: SweepFolder, tracking_uri: str | None = None) -> bool:
    """Return whether the store holds everything, where that is sure without importing mlflow: in a file.

    A server's database may have been restored from a backup that is older than our note, so only publishing can tell.
    """
    return database_file(resolve(folder.home, tracking_uri)) is not None and up_to_date(folder, tracking_uri)


def remember(folder: SweepFolder, uri: str, copied: Copied) -> None:
    """Note that the store at `uri` holds `copied`."""
    PublishedState(stores=_read(folder) | {masked(uri): copied}).write(folder.published)


def copies(home: Path, uri: str) -> dict[str, Copied]:
    """Return the copy of each sweep below `home` that the store at `uri` has, the latest first."""
    found = {folder.name: _read(folder).get(masked(uri)) for folder in _published_sweeps(home)}
    return {name: copied for name, copied in found.items() if copied is not None}


def run_digests(manifest: Manifest, records: Mapping[str, str]) -> dict[str, str]:
    """Return the digest of each repeat's MLflow run, given the SHA-256 of its record."""
    axes = {cell.name: cell.axes for cell in manifest.cells}
    return {run: run_digest(sha256, axes[Run.parse(run).cell]) for run, sha256 in records.items()}


def _repeats(folder: SweepFolder) -> dict[str, str]:
    manifest = Manifest.read(folder.manifest)
    present = [run for run in manifest.wanted_runs() if folder.record(run).is_file()]
    return run_digests(manifest, {run: sha256_file(folder.record(run)) for run in present})


def _read(folder: SweepFolder) -> dict[str, Copied]:
    try:
        return PublishedState.read(folder.published).stores
    except (FileNotFoundError, DamagedFile):
        return {}


def _still_there(uri: str, copied: Copied) -> bool:
    database = database_file(uri)
    if database is None:
        return True
    if not database.is_file():  # a FIFO waits for its writer
        return False
    count = (
        "select count(*) from runs join experiments using (experiment_id) where experiment_id = ?"
        " and runs.lifecycle_stage = 'active' and experiments.lifecycle_stage = 'active'"
    )
    try:
        with contextlib.closing(sqlite3.connect(f"{database.as_uri()}?mode=ro", uri=True)) as connection:
            (active,) = connection.execute(count, (int(copied.experiment_id),)).fetchone()
    except (sqlite3.Error, ValueError):
        return False
    return bool(active >= copied.active_runs)


def _published_sweeps(home: Path) -> list[SweepFolder]:
    """Return the sweeps below `home` that were copied to a store of MLflow, the latest first."""
    noted = sorted((home / SWEEPS_FOLDER).glob(f"*/{PUBLISHED_FILE}"), key=lambda path: -path.stat().st_mtime_ns)
    return [SweepFolder(home, path.parent.name) for path in noted]
