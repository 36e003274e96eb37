"""Copy a sweep into MLflow until the store holds exactly the content of the folder.

Every publication has the same loop: take a snapshot of the folder, look at the store, write the difference, look again.
It serves a first copy, a resumed one, a repeat measured again and two publishers at once.
"""

from __future__ import annotations

import accelsweep.tracking.mlflow_settings  # noqa: F401 - before mlflow

# isort: split
import math
import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from accelsweep.errors import AccelsweepError, DamagedFile, InputError
from accelsweep.installation import shipped_root
from accelsweep.records.layout import SweepFolder
from accelsweep.redaction import masked
from accelsweep.tracking.repeat_runs import cell_key, finished_run, report_run, run_key, running_run
from accelsweep.tracking.saved_views import show_first
from accelsweep.tracking.setting_runs import GROUP_KEY, cell_run, group_run
from accelsweep.tracking.store import (
    Store,
    connect,
    mark_of,
    refusal,
    refuse_damaged,
    set_aside,
    store_errors,
    too_large_remedy,
    why,
)
from accelsweep.tracking.sweep_snapshot import (
    Copied,
    Snapshot,
    database_file,
    remember,
    report_digest,
    resolve,
    run_digest,
    run_digests,
    take,
)

if TYPE_CHECKING:
    from accelsweep.tracking.run_upload import Writer

Tell = Callable[[str], None]

_FIRST_PAUSE_SECONDS = 0.5

_LONGEST_PAUSE_SECONDS = 10.0

_MAX_PASSES = 5

_MOST_NAMED = 5

_DRIVERS = {"psycopg2": "psycopg2-binary", "MySQLdb": "mysqlclient"}
"""The packages of database drivers that are not named as their modules."""


class StoreUnreachable(AccelsweepError):
    """MLflow did not answer, or refused. The records are safe; publishing can be repeated at any time."""


class ArtifactsTooLarge(AccelsweepError):
    """All was copied but files that the server, or a proxy in front of it, found too large."""


@dataclass(frozen=True)
class Publication:
    """A publisher's result: `written` MLflow runs were created or changed; `finished` records stand in the store."""

    sweep: str
    experiment: str
    uri: str
    written: int
    finished: int
    damaged: tuple[str, ...]

    def __str__(self) -> str:
        """Return the sentence that a user reads."""
        where = f"MLflow experiment {self.experiment!r} at {masked(self.uri)}"
        left_out = "".join(f"\nleft out: {line}" for line in self.damaged)
        return f"{self.sweep}: {self.finished} runs in {where} ({self.written} entries written){left_out}"


def publish(
    folder: SweepFolder,
    tracking_uri: str | None = None,
    *,
    patience_seconds: float = 30.0,
    tell: Tell = print,
) -> Publication:
    """Copy missing and different runs to the store, and return the result; the store itself is always asked.

    A store that does not answer is tried again for `patience_seconds`; `tell` reports that once. Raises
    StoreUnreachable after that, and where a server refuses the user; NewerFile for the plan of a later version;
    ArtifactsTooLarge after all else was copied.
    """
    from accelsweep.tracking.run_upload import Writer

    uri = resolve(folder.home, tracking_uri)
    if database_file(uri) is None:
        mark_of(folder)  # here, so that a folder that cannot be written to is not taken for a silent store
    written = 0
    store: Store | None = None
    left_out: dict[str, list[str]] = {}

    def converge() -> Publication:
        nonlocal written, store
        store = None
        for _ in range(_MAX_PASSES):
            report = report_digest(folder)  # taken first: a later change is published next time
            snapshot = take(folder)  # and before the store: where the plan cannot be read, none is made
            store = store or connect(folder, uri, snapshot.records)
            writer = Writer(store, store.look(), left_out)
            bring_about_all(writer, snapshot, report)
            written += writer.written
            if not writer.written:
                show_first(store, snapshot)
                if not left_out:
                    _remember(folder, store, writer, snapshot, report)
                break
        assert store is not None, "the first pass connects"
        return Publication(folder.name, store.experiment, uri, written, len(snapshot.finished), snapshot.damaged)

    done = _patiently(converge, uri, patience_seconds, tell, lambda: store.experiment if store else None, folder.name)
    if left_out:
        raise ArtifactsTooLarge(f"{done}. Not copied: {_listed(left_out)}: {too_large_remedy()}")
    return done


def start_anew(folder: SweepFolder, tracking_uri: str | None, tell: Tell = print) -> None:
    """Empty the store for copies made from the records: a file is set aside, of a server our runs of this sweep go.

    The runs can be restored in MLflow. Raises StoreUnreachable where a server does not answer, or refuses the user.
    """
    uri = resolve(folder.home, tracking_uri)
    path = database_file(uri)
    if path is None:
        store = connect(folder, uri, take(folder).records)
        for run in (run for same in store.look().values() for run in same):
            store.client.delete_run(run.run_id)
    elif os.path.lexists(path):
        tell(f"the old store is kept as {set_aside(path)}; delete it when nothing of your own is in it")


def _listed(left_out: Mapping[str, Sequence[str]]) -> str:
    names = [name for some in left_out.values() for name in some]
    more = f" and {len(names) - _MOST_NAMED} more" if len(names) > _MOST_NAMED else ""
    return ", ".join(names[:_MOST_NAMED]) + more


def bring_about_all(writer: Writer, snapshot: Snapshot, digest: str) -> None:
    """Bring about cells, runs and the report (whose files have this digest), and mark interrupted runs as killed."""
    keys = bring_about_runs(writer, snapshot)
    if snapshot.findings is not None or snapshot.folder.report.exists():
        report = report_run(snapshot, digest, _constraints(snapshot.folder))
        writer.bring_about(report)
        keys.add(report.key)
    writer.abandon(keys)


def bring_about_runs(writer: Writer, snapshot: Snapshot) -> set[str]:
    """Bring about the cells and runs of a snapshot, parents first; return their keys."""
    planned = {cell.name: cell for cell in snapshot.manifest.cells}
    keys = {run_key(run) for run in snapshot.running.keys() | snapshot.finished.keys()}
    group = group_run(snapshot)
    if group is not None:
        writer.bring_about(group)
    for cell in planned.values():
        if (wanted := cell_run(snapshot, cell)) is not None:
            writer.bring_about(wanted)
            keys.add(wanted.key)
    if group is None:
        writer.remove(GROUP_KEY)  # only now, since no setting stands below it any more
    for running in snapshot.running.values():
        writer.bring_about(running_run(running, planned[running.cell]))
    for item in snapshot.finished.values():
        cell = planned[item.cell]
        digest = run_digest(item.sha256, cell.axes)
        if not writer.holds(run_key(item.run), item.sha256, digest, cell_key(item.cell)):
            try:
                writer.bring_about(finished_run(snapshot.folder, item, cell))
            except (DamagedFile, FileNotFoundError):
                continue  # it changed meanwhile: the next snapshot names it
    return keys


def _remember(folder: SweepFolder, store: Store, writer: Writer, snapshot: Snapshot, report: str) -> None:
    if snapshot.live or snapshot.running:
        return
    records = run_digests(snapshot.manifest, {item.run: item.sha256 for item in snapshot.finished.values()})
    copied = Copied(
        experiment_id=store.experiment_id,
        active_runs=len(writer.held),
        records=records,
        report=report,
        views=True,
    )
    remember(folder, store.uri, copied)


def _constraints(folder: SweepFolder) -> Path | None:
    """Return the file of pinned versions: the working directory's own, else the one shipped with accelsweep."""
    for candidate in (folder.home, shipped_root()):
        if (candidate / "constraints.txt").is_file():
            return candidate / "constraints.txt"
    return None


def _lacks(uri: str, module: str) -> str:
    package = _DRIVERS.get(module, module)
    return f"MLflow at {masked(uri)} needs the Python package {module}: pip install {package}"


def _patiently(
    converge: Callable[[], Publication],
    uri: str,
    patience_seconds: float,
    tell: Tell,
    experiment: Callable[[], str | None],
    sweep: str,
) -> Publication:
    deadline, pause, told = math.inf, _FIRST_PAUSE_SECONDS, False
    while True:
        try:
            return converge()
        except ModuleNotFoundError as error:
            raise InputError(_lacks(uri, str(error.name))) from error
        except store_errors() as error:
            refuse_damaged(uri, error, sweep)
            if refused := refusal(uri, error, experiment(), sweep):
                raise StoreUnreachable(refused) from error
            deadline = min(deadline, time.monotonic() + patience_seconds)  # the time before the first failure is free
            if time.monotonic() + pause > deadline:
                raise StoreUnreachable(
                    f"MLflow at {masked(uri)} could not be filled: {why(error)}. All records are safe"
                ) from error
            if not told:
                tell(f"MLflow at {masked(uri)} does not answer ({why(error)}); trying for {patience_seconds:.0f} s")
                told = True
        time.sleep(pause)
        pause = min(2 * pause, _LONGEST_PAUSE_SECONDS)
