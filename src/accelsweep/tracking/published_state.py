"""Records what was published, in `published.json` in the sweep's folder, without importing mlflow."""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Mapping
from pathlib import Path
from typing import ClassVar

from accelsweep.errors import DamagedFile
from accelsweep.files import sha256_file
from accelsweep.json_documents import Document, Frozen
from accelsweep.records.layout import PUBLISHED_FILE, SWEEPS_FOLDER, SweepFolder
from accelsweep.records.plan import Manifest
from accelsweep.redaction import masked
from accelsweep.run_config import Run
from accelsweep.tracking.snapshot import report_digest, run_digest
from accelsweep.tracking.store_uri import resolve_uri, sqlite_path

SWEEP_CONTINUES = "; the sweep goes on"
"""The suffix of the messages about a store that a publisher prints during a sweep. The driver shows lines with this
suffix immediately."""


class PublishedCopy(Frozen):
    """A complete copy of a sweep in a store; `records` contains the digest of each repeat's MLflow run."""

    experiment_id: str
    active_runs: int
    records: dict[str, str]
    report: str


class PublishedState(Document):
    """A sweep's copies, keyed by store URI with credentials stripped."""

    kind: ClassVar[str] = "published"

    stores: dict[str, PublishedCopy]


def up_to_date(folder: SweepFolder, tracking_uri: str | None = None) -> bool:
    """Return whether the store is up to date with the folder, without importing mlflow.

    A SQLite file is checked for the experiment and its runs. For any other store, `published.json` is trusted.
    """
    uri = resolve_uri(folder.home, tracking_uri)
    published = _read_copies(folder).get(masked(uri))
    if published is None or published.report != report_digest(folder):
        return False
    manifest = Manifest.read(folder.manifest)
    present = [run for run in manifest.wanted_runs() if folder.record(run).is_file()]
    if published.records != run_digests(manifest, {run: sha256_file(folder.record(run)) for run in present}):
        return False
    database = sqlite_path(uri)
    return database is None or _has_runs(database, published)


def verified_up_to_date(folder: SweepFolder, tracking_uri: str | None = None) -> bool:
    """Return whether the store is a SQLite file that is verifiably up to date.

    A server may have been restored from a backup older than `published.json`, so only publishing can verify that its
    copy is up to date.
    """
    return sqlite_path(resolve_uri(folder.home, tracking_uri)) is not None and up_to_date(folder, tracking_uri)


def remember_copy(folder: SweepFolder, uri: str, published: PublishedCopy) -> None:
    """Record a complete copy in the store at `uri`."""
    PublishedState(stores=_read_copies(folder) | {masked(uri): published}).write(folder.published)


def published_sweeps(home: Path, uri: str) -> dict[str, PublishedCopy]:
    """Return the published copies of sweeps under `home` in the store at `uri`, newest first."""
    files = sorted((home / SWEEPS_FOLDER).glob(f"*/{PUBLISHED_FILE}"), key=lambda path: -path.stat().st_mtime_ns)
    copies = {path.parent.name: _read_copies(SweepFolder(home, path.parent.name)).get(masked(uri)) for path in files}
    return {name: published for name, published in copies.items() if published is not None}


def run_digests(manifest: Manifest, records: Mapping[str, str]) -> dict[str, str]:
    """Return the digest of each repeat's MLflow run, given the SHA-256 of its record."""
    axes = {setting.name: setting.axes for setting in manifest.settings}
    return {run: run_digest(sha256, axes[Run.parse(run).setting]) for run, sha256 in records.items()}


def _read_copies(folder: SweepFolder) -> dict[str, PublishedCopy]:
    try:
        return PublishedState.read(folder.published).stores
    except (FileNotFoundError, DamagedFile):
        return {}


def _has_runs(database: Path, published: PublishedCopy) -> bool:
    if not database.is_file():  # opening a FIFO would block
        return False
    query = (
        "select count(*) from runs join experiments using (experiment_id) where experiment_id = ?"
        " and runs.lifecycle_stage = 'active' and experiments.lifecycle_stage = 'active'"
    )
    try:
        with contextlib.closing(sqlite3.connect(f"{database.as_uri()}?mode=ro", uri=True)) as connection:
            (active,) = connection.execute(query, (int(published.experiment_id),)).fetchone()
    except (sqlite3.Error, ValueError):
        return False
    return bool(active >= published.active_runs)
