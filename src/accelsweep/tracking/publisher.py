"""Copies a sweep to MLflow.

Each pass compares a snapshot of the folder with the store and writes the differences, until none remain. The same loop
makes a first copy, resumes an interrupted copy, replaces remeasured runs, and converges when several publishers run at
once.
"""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from accelsweep.errors import AccelsweepError, DamagedFile
from accelsweep.installation import shipped_root
from accelsweep.records.layout import SweepFolder
from accelsweep.redaction import masked
from accelsweep.significant_digits import count_of
from accelsweep.tracking.links import report_path
from accelsweep.tracking.published_state import PublishedCopy, remember_copy, run_digests
from accelsweep.tracking.repeat_runs import finished_run, report_key, report_run, run_key, running_run, setting_key
from accelsweep.tracking.saved_views import update_experiment_page
from accelsweep.tracking.setting_runs import UNSUPPORTED_KEY, report_rows, setting_run, unsupported_group_run
from accelsweep.tracking.snapshot import Snapshot, report_digest, run_digest, take_snapshot
from accelsweep.tracking.store import Store, connect, move_aside, sweep_mark
from accelsweep.tracking.store_errors import (
    TOO_LARGE_REMEDY,
    StoreUnavailable,
    missing_package,
    permanent_error,
    short_reason,
    store_exceptions,
)
from accelsweep.tracking.store_uri import is_server, resolve_uri, sqlite_path

if TYPE_CHECKING:
    from accelsweep.tracking.run_writer import RunWriter

Echo = Callable[[str], None]
"""Prints a line for the user."""

_FIRST_PAUSE_SECONDS = 0.5
_MAX_PAUSE_SECONDS = 10.0
_MAX_PASSES = 5
_MAX_LISTED = 5


class ArtifactsTooLarge(AccelsweepError):
    """Everything was copied except for files that the server or its proxy rejected as too large."""


@dataclass(frozen=True)
class Publication:
    """The result of publishing.

    `written` is the number of MLflow runs created, changed or deleted, and `finished` is the number of records in the
    store. `damaged` describes the files that were left out.
    """

    sweep: str
    experiment: str
    uri: str
    written: int
    finished: int
    damaged: tuple[str, ...]

    def __str__(self) -> str:
        # a server's bare address would open MLflow's home page
        where = f"MLflow experiment {self.experiment!r}" + ("" if is_server(self.uri) else f" at {masked(self.uri)}")
        left_out = "".join(f"\nleft out: {line}" for line in self.damaged)
        written = f"({count_of(self.written, 'MLflow run')} written)"
        return f"{self.sweep}: {count_of(self.finished, 'run')} in {where} {written}{left_out}"


def publish(
    folder: SweepFolder, tracking_uri: str | None = None, *, retry_seconds: float = 30.0, echo: Echo = print
) -> Publication:
    """Copy whatever is missing or different to the store, which is always queried, regardless of `published.json`.

    An unresponsive store is retried for `retry_seconds` after the first failure, which is reported once through `echo`.
    Raises StoreUnavailable after that, or immediately if the store rejects the request; StoreDamaged for a damaged
    SQLite file; NewerFile if a later version wrote the plan; ArtifactsTooLarge after everything else was copied.
    """
    uri = resolve_uri(folder.home, tracking_uri)
    if sqlite_path(uri) is None:
        sweep_mark(folder)  # an unwritable folder must fail here, rather than appear as a store failure
    publisher = _Publisher(folder, uri)
    deadline, pause = math.inf, _FIRST_PAUSE_SECONDS
    while True:
        try:
            result = publisher.converge()
            break
        except ModuleNotFoundError as error:
            raise missing_package(uri, error) from error
        except store_exceptions() as error:
            experiment = publisher.store.experiment if publisher.store else None
            if permanent := permanent_error(uri, error, experiment, folder.name):
                raise permanent from error
            reason, first = short_reason(error), deadline == math.inf
            deadline = min(deadline, time.monotonic() + retry_seconds)
            if time.monotonic() + pause > deadline:
                raise StoreUnavailable(
                    f"MLflow at {masked(uri)} could not be written to: {reason}. All records are safe"
                ) from error
            if first:
                echo(f"MLflow at {masked(uri)} does not answer ({reason}); retrying for {retry_seconds:.0f} s")
        time.sleep(pause)
        pause = min(2 * pause, _MAX_PAUSE_SECONDS)
    if publisher.too_large:
        files = [file for files in publisher.too_large.values() for file in files]
        more = f" and {len(files) - _MAX_LISTED} more" if len(files) > _MAX_LISTED else ""
        raise ArtifactsTooLarge(f"{result}. Not copied: {', '.join(files[:_MAX_LISTED])}{more}: {TOO_LARGE_REMEDY}")
    return result


class _Publisher:
    """Publishes one sweep to one store; its counts include those of failed attempts."""

    def __init__(self, folder: SweepFolder, uri: str) -> None:
        self._folder, self._uri = folder, uri
        self._written = 0
        self.store: Store | None = None
        self.too_large: dict[str, list[str]] = {}

    def converge(self) -> Publication:
        """Publish until a pass finds nothing to write."""
        from accelsweep.tracking.run_writer import RunWriter

        self.store = None
        for _ in range(_MAX_PASSES):
            # The report is hashed first: if it changes meanwhile, the next command publishes it. The snapshot is taken
            # before connecting, so that no store is created for an unreadable plan.
            report = report_digest(self._folder)
            snapshot = take_snapshot(self._folder)
            store = self.store = self.store or connect(self._folder, self._uri, snapshot.record_digests)
            writer = RunWriter(store, store.list_runs(), self.too_large)
            publish_snapshot(writer, snapshot, report)
            self._written += writer.written
            if not writer.written:
                update_experiment_page(store, snapshot, _report_link(writer, snapshot))
                if not (self.too_large or snapshot.live or snapshot.running):
                    records = {run.run: run.sha256 for run in snapshot.finished.values()}
                    published = PublishedCopy(
                        experiment_id=store.experiment_id,
                        active_runs=len(writer.stored),
                        records=run_digests(snapshot.manifest, records),
                        report=report,
                    )
                    remember_copy(self._folder, self._uri, published)
                break
        return Publication(
            self._folder.name, store.experiment, self._uri, self._written, len(snapshot.finished), snapshot.damaged
        )


def publish_snapshot(writer: RunWriter, snapshot: Snapshot, report: str) -> None:
    """Write the report (with the digest `report`) and all runs, and mark interrupted runs as killed.

    The report comes first, because the descriptions of settings link to it.
    """
    keys = set()
    if snapshot.findings is not None or snapshot.folder.report.exists():
        candidates = (snapshot.folder.home / "constraints.txt", shipped_root() / "constraints.txt")
        run = report_run(snapshot, report, next((path for path in candidates if path.is_file()), None))
        writer.write(run)
        keys.add(run.key)
    writer.kill_abandoned(keys | publish_runs(writer, snapshot))


def publish_runs(writer: RunWriter, snapshot: Snapshot) -> set[str]:
    """Write the settings and repeats of a snapshot, parents first; return their keys."""
    settings = {setting.name: setting for setting in snapshot.manifest.settings}
    link, rows = _report_link(writer, snapshot), report_rows(snapshot)
    keys = {run_key(run) for run in snapshot.running.keys() | snapshot.finished.keys()}
    group = unsupported_group_run(snapshot)
    if group is not None:
        writer.write(group)
    for setting in settings.values():
        if (run := setting_run(snapshot, setting, link, rows.get(setting.name, ()))) is not None:
            writer.write(run)
            keys.add(run.key)
    if group is None:
        writer.remove(UNSUPPORTED_KEY)  # only after the settings are written, so that none still has it as its parent
    for running in snapshot.running.values():
        writer.write(running_run(running, settings[running.setting]))
    for finished in snapshot.finished.values():
        setting = settings[finished.setting]
        digest = run_digest(finished.sha256, setting.axes)
        if not writer.has(run_key(finished.run), finished.sha256, digest, setting_key(finished.setting)):
            try:
                writer.write(finished_run(snapshot.folder, finished, setting))
            except (DamagedFile, FileNotFoundError):
                continue  # the record has changed or disappeared in the meantime: the next snapshot shows that
    return keys


def _report_link(writer: RunWriter, snapshot: Snapshot) -> str | None:
    """Return the link from a description in MLflow to the sweep's report; None if there is no report yet."""
    run_id = writer.id_of(report_key(snapshot)) if snapshot.folder.page.is_file() else None
    return None if run_id is None else report_path(writer.experiment_id, run_id).removeprefix("/")


def reset_store(folder: SweepFolder, tracking_uri: str | None, echo: Echo = print) -> None:
    """Make way for a new copy: move a SQLite file aside, or delete this sweep's runs (restorable in MLflow).

    Raises StoreUnavailable if a server does not respond or rejects the request.
    """
    uri = resolve_uri(folder.home, tracking_uri)
    path = sqlite_path(uri)
    if path is not None:
        if os.path.lexists(path):
            echo(f"the old store is kept as {move_aside(path)}; delete it if it contains nothing else that you need")
        return
    records = take_snapshot(folder).record_digests
    try:
        store = connect(folder, uri, records)
        for run in (run for duplicates in store.list_runs().values() for run in duplicates):
            store.client.delete_run(run.run_id)
    except store_exceptions() as error:
        unanswered = StoreUnavailable(f"MLflow at {masked(uri)} does not answer ({short_reason(error)})")
        raise permanent_error(uri, error, None, folder.name) or unanswered from error
