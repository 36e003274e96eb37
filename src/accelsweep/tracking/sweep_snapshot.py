"""The content of a sweep's folder at one moment: its plan, its runs' records, and the run that is being measured."""

from __future__ import annotations

import contextlib
import os
import sqlite3
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar
from urllib.parse import quote, unquote_to_bytes, urlsplit

from accelsweep.devices.file_system import Ability, lacking
from accelsweep.errors import DamagedFile, InputError
from accelsweep.json_documents import Document, Frozen, canonical_json, sha256_file, sha256_text
from accelsweep.records.file_lock import living_hold
from accelsweep.records.findings import CellFinding, Findings
from accelsweep.records.layout import PUBLISHED_FILE, SWEEPS_FOLDER, SweepFolder
from accelsweep.records.plan import Hold, Manifest, Run
from accelsweep.records.run_files import read_record
from accelsweep.records.run_record import Outcome, Record
from accelsweep.records.sweep_progress import steps_done
from accelsweep.redaction import login_of, masked
from accelsweep.state.profiles import profile_files

# The origin of a measurement, as tags: model, data, library versions, and the user's commit.

COMMIT = "mlflow.source.git.commit"

DIRTY = "mlflow.source.git.dirty"


def origin(record: Record) -> dict[str, str]:
    """Return the tags of one record; a fact that is not known is absent."""
    dirty = record.checkout.dirty
    known: dict[str, Any] = {
        "model": record.config.model_target,
        "data": record.config.data_target,
        **record.fingerprint.software,
        COMMIT: record.checkout.commit,
        DIRTY: None if dirty is None else str(dirty).lower(),
    }
    return {name: str(value) for name, value in known.items() if value}


def common(origins: Iterable[Mapping[str, str]]) -> dict[str, str]:
    """Return the tags of several records together; values that differ stand side by side, in the order of the runs."""
    found: dict[str, dict[str, None]] = {}
    for one in origins:
        for name, value in one.items():
            found.setdefault(name, {})[value] = None
    return {name: ", ".join(values) for name, values in found.items()}


FileStamp = tuple[int, int]
"""A file's modification time in nanoseconds and its size: these change when a file is written anew."""


_FORM = 4
"""Raised whenever a run gets another name, place, status, tag, param or metric: earlier copies are then completed."""


@dataclass(frozen=True)
class Finished:
    """A run that left a record. `stamp` is its file's; times are ISO 8601; `origin` are its tags of that name."""

    run: str
    cell: str
    sha256: str
    outcome: Outcome
    started_at: str
    finished_at: str
    stamp: FileStamp
    origin: Mapping[str, str] = field(default_factory=dict)
    reason: str | None = None


@dataclass(frozen=True)
class RunningRun:
    """A run that is being measured now; `step` is the number of steps that it has done, where known."""

    run: str
    cell: str
    block: str
    since: str
    step: int | None


@dataclass(frozen=True)
class Snapshot:
    """A sweep's folder at one moment.

    `planned` is the time of the plan, in milliseconds since 1970. `stamps` are those of manifest and findings. `live`
    says whether the sweep still has a living head or supervisor. `damaged` names files that could not be used, and why.
    """

    folder: SweepFolder
    manifest: Manifest
    planned: int
    findings: Findings | None
    stamps: tuple[FileStamp | None, FileStamp | None]
    finished: Mapping[str, Finished]
    running: Mapping[str, RunningRun]
    live: bool
    damaged: tuple[str, ...] = ()
    runs_of: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    @property
    def records(self) -> list[str]:
        """The SHA-256 sums of the records."""
        return [item.sha256 for item in self.finished.values()]

    def differs_in_steps_only(self, previous: Snapshot | None) -> bool:
        """Return whether nothing but the step counts of the running runs may have changed since `previous`."""
        return (
            previous is not None
            and (self.stamps, self.live) == (previous.stamps, previous.live)
            and self.finished == previous.finished
            and self.running.keys() == previous.running.keys()
            and all(item.since == previous.running[run].since for run, item in self.running.items())
        )

    def findings_of(self, cell: str) -> tuple[CellFinding, ...]:
        """Return the last analysis' findings of a cell, one for each kind of hardware that it was run on."""
        return tuple(item for item in self.findings.cells if item.cell == cell) if self.findings else ()


def take(folder: SweepFolder, previous: Snapshot | None = None, *, live: bool = False) -> Snapshot:
    """Return the present content of the folder; files that have not changed since `previous` are not read again.

    `live` says that the sweep is known to go on, also while no block is held. Raises DamagedFile if the manifest is
    damaged; any other damaged file is named in the snapshot and left out.
    """
    damaged: list[str] = []
    stamps = _stamp(folder.manifest), _stamp(folder.findings)
    unchanged = [previous is not None and previous.stamps[k] == stamps[k] for k in (0, 1)]
    manifest = previous.manifest if previous and unchanged[0] else Manifest.read(folder.manifest)
    findings = previous.findings if previous and unchanged[1] else _findings(folder, damaged)
    wanted = set(manifest.wanted_runs())
    finished: dict[str, Finished] = {}
    known = previous.finished if previous else {}
    for run in sorted(wanted):
        try:
            if (item := _finished(folder, run, known.get(run))) is not None:
                finished[run] = item
        except DamagedFile as error:
            damaged.append(str(error))
    holds = [hold for block in manifest.blocks if (hold := living_hold(folder.hold(block.name)))]
    running = {item.run: item for item in _running(folder, holds) if item.run in wanted - set(finished)}
    return Snapshot(
        folder=folder,
        manifest=manifest,
        planned=stamps[0][0] // 1_000_000 if stamps[0] else 0,
        findings=findings,
        stamps=stamps,
        finished=finished,
        running=running,
        live=live or bool(holds),
        damaged=tuple(damaged),
        runs_of=_runs_of(manifest),
    )


def run_digest(source: str, axes: Mapping[str, Any]) -> str:
    """Return the digest of a repeat's MLflow run: of its form, its sources, and its cell's axes, which name it.

    A later revision of the plan may have one more axis. The record stays as it is, and the run gets the name of its
    cell.
    """
    return sha256_text(canonical_json([_FORM, source, axes]))


def report_digest(folder: SweepFolder) -> str:
    """Return the digest of everything that the `report` run carries; equal digests mean equal artifacts."""
    files = [path for path in sorted(folder.report.rglob("*")) if path.is_file()] if folder.report.exists() else []
    files += [path for path in (folder.manifest, folder.findings, folder.records) if path.exists()]
    files += profile_files(folder)
    return sha256_text(canonical_json([[str(path.relative_to(folder.home)), sha256_file(path)] for path in files]))


def _stamp(path: Path) -> FileStamp | None:
    try:
        status = path.stat()
    except FileNotFoundError:
        return None
    return status.st_mtime_ns, status.st_size


def _findings(folder: SweepFolder, damaged: list[str]) -> Findings | None:
    try:
        return Findings.read(folder.findings)
    except FileNotFoundError:
        return None
    except DamagedFile as error:
        damaged.append(str(error))
        return None


def _finished(folder: SweepFolder, run: str, known: Finished | None) -> Finished | None:
    path = folder.record(run)
    stamp = _stamp(path)
    if stamp is None:
        return None
    if known is not None and known.stamp == stamp:
        return known
    record = read_record(folder, run)
    return Finished(
        run=run,
        cell=record.cell,
        sha256=sha256_file(path),
        outcome=record.outcome,
        started_at=record.started_at,
        finished_at=record.finished_at,
        stamp=stamp,
        origin=origin(record),
        reason=record.reason,
    )


def _running(folder: SweepFolder, holds: list[Hold]) -> list[RunningRun]:
    return [
        RunningRun(
            run=hold.run,
            cell=Run.parse(hold.run).cell,
            block=hold.block,
            since=hold.run_since,
            step=steps_done(folder, hold.run),
        )
        for hold in holds
        if hold.run and hold.run_since
    ]


def _runs_of(manifest: Manifest) -> dict[str, tuple[str, ...]]:
    runs: dict[str, list[str]] = {}
    for run in manifest.wanted_runs():
        runs.setdefault(Run.parse(run).cell, []).append(run)
    return {cell: tuple(names) for cell, names in runs.items()}


# The MLflow store of a sweep, and the place of its artifacts.

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


# The copies of a sweep in stores, noted beside the records, so that mlflow is not imported when nothing changed.


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
