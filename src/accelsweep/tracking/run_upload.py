"""Bring one MLflow run into the wanted state, so that the work can be cut off anywhere and done again.

A run is created with its key and its source, then filled and ended. At the very end it is tagged with its digest, so a
run that carries the digest is whole. Filling a run twice leaves the same run, because params are only added and a
record's metric points carry the record's times.
"""

from __future__ import annotations

import accelsweep.tracking.mlflow_settings  # noqa: F401 - before mlflow

# isort: split
import contextlib
import tempfile
import time
from collections.abc import Collection, Iterable, Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from mlflow.entities import Dataset, DatasetInput, InputTag, Metric, Param, RunTag
from mlflow.exceptions import MlflowException
from mlflow.store.artifact.artifact_repository_registry import get_artifact_repository

from accelsweep.tracking.mlflow_run import CREATED, KEY, PARENT, PUBLISHED, SOURCE, Artifact, Wanted
from accelsweep.tracking.repeat_runs import RUNNING_SOURCE
from accelsweep.tracking.store import TOO_LARGE, Store, StoredRun, status_of

# Files of an MLflow run: after a folder is stored, it holds the new files and none of an earlier one.


def store_artifacts(address: str, tracking_uri: str, artifacts: Iterable[Artifact]) -> list[str]:
    """Store texts, files and folders at a run's address. Files of the run outside of those folders are left alone.

    Returns the names, with their sizes, of those that the server or a proxy in front of it found too large.
    """
    repository = get_artifact_repository(address, tracking_uri)
    too_large: list[str] = []
    for artifact in artifacts:
        _store(repository, artifact, too_large)
    return too_large


def _store(repository: Any, artifact: Artifact, too_large: list[str]) -> None:
    if isinstance(artifact.source, str):
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / artifact.target
            path.write_text(artifact.source, "utf-8")
            _send(repository, path, "", too_large)
    elif artifact.source.is_dir():
        for path in sorted(artifact.source.rglob("*")):
            if path.is_file():  # a FIFO would be waited for, and a device has no end
                target = Path(artifact.target) / path.relative_to(artifact.source).parent
                _send(repository, path, target.as_posix(), too_large)
        _delete_left_over(repository, artifact.source, artifact.target)
    else:
        _send(repository, artifact.source, artifact.target, too_large)


def _send(repository: Any, path: Path, target: str, too_large: list[str]) -> None:
    try:
        repository.log_artifact(str(path), target or None)
    except (MlflowException, OSError) as error:
        if status_of(error) != TOO_LARGE:
            raise
        too_large.append(f"{target}/{path.name}".lstrip("/") + f" ({path.stat().st_size / 1e6:.1f} MB)")


def _delete_left_over(repository: Any, source: Path, target: str) -> None:
    """Delete files of the run's folder `target` that are not in `source`; a store that cannot delete keeps them."""
    wanted = {f"{target}/{path.relative_to(source).as_posix()}" for path in source.rglob("*") if path.is_file()}
    for path in [path for path in _files(repository, target) if path not in wanted]:
        with contextlib.suppress(NotImplementedError, MlflowException, OSError):
            repository.delete_artifacts(path)


def _files(repository: Any, folder: str) -> Iterator[str]:
    for item in repository.list_artifacts(folder):
        if item.is_dir:
            yield from _files(repository, item.path)
        else:
            yield item.path


_METRICS_PER_CALL = 900

_PARAMS_PER_CALL = 90

_SAME_START_MILLISECONDS = 1000

_LACKING = " without "
"""Stands behind the digest of a run that lacks artifacts: the next publication sends them again."""


class Writer:
    """Writes into one experiment. It keeps its reads and writes, so that it need not look again while it is alone."""

    def __init__(
        self, store: Store, held: dict[str, list[StoredRun]], left_out: dict[str, list[str]] | None = None
    ) -> None:
        """`held` is the present content of the store (`store.look()`).

        `left_out` names, by the key of a run, artifacts that an earlier pass of the same publication found too large.
        """
        self._store = store
        self._client = store.client
        self.held = held
        self._ids = {key: same[0].run_id for key, same in held.items()}
        self.written = 0
        """The number of runs that were created, changed or deleted."""
        self.left_out = {} if left_out is None else left_out
        """The artifacts that were too large for the store, by the key of their run; these are not sent once more."""

    def settled(self, wanted: Wanted) -> bool:
        """Return whether the store holds exactly this run and nothing beside it under its key."""
        return self.holds(wanted.key, wanted.source, wanted.digest, wanted.parent)

    def holds(self, key: str, source: str, digest: str, parent: str | None) -> bool:
        """Return whether the one run under `key` has these marks and this parent, without building the wanted run."""
        same = self.held.get(key, [])
        return (
            len(same) == 1
            and (same[0].source, same[0].published) == (source, self._mark(key, digest))
            and same[0].parent_id == self._id_of(parent)
        )

    def bring_about(self, wanted: Wanted) -> None:
        """Create, complete or replace the run, and delete any other one under its key (restorable in MLflow)."""
        if self.settled(wanted):
            return
        matching = [entry for entry in self.held.get(wanted.key, []) if _continues(entry, wanted)]
        entry = matching[0] if matching else self._create(wanted)
        parent = self._place(entry, wanted)
        if (entry.source, entry.published) != (wanted.source, self._mark(wanted.key, wanted.digest)):
            self._fill(entry, wanted)
        for other in self.held.get(wanted.key, []):
            if other.run_id != entry.run_id:
                self._delete(other.run_id)
        self.written += 1
        published = self._mark(wanted.key, wanted.digest)
        self.held[wanted.key] = [_as_wanted(entry, wanted, parent, published)]
        self._ids[wanted.key] = entry.run_id

    def remove(self, key: str) -> None:
        """Delete the run under a key, if there is one (restorable in MLflow)."""
        for entry in self.held.pop(key, []):
            self._delete(entry.run_id)
            self.written += 1
        self._ids.pop(key, None)

    def progress(self, key: str, step: int) -> None:
        """Log how many steps a running run has done, under `steps_done`."""
        self._client.log_metric(self._ids[key], "steps_done", float(step), step=step)

    def abandon(self, wanted: Collection[str]) -> None:
        """Mark as KILLED each run that the store calls running and that is no longer among the keys `wanted`.

        The digest's tag is removed first. If this is cut off after that, a resumed run is filled anew, without
        `not_run`.
        """
        for entry in [entry for same in self.held.values() for entry in same]:
            if entry.status == "RUNNING" and entry.key not in wanted:
                self._client.set_tag(entry.run_id, PUBLISHED, "abandoned")
                self._client.set_tag(entry.run_id, "outcome", "not_run")
                self._client.set_terminated(entry.run_id, status="KILLED")
                self.written += 1

    def _mark(self, key: str, digest: str) -> str:
        lacking = self.left_out.get(key)
        return f"{digest}{_LACKING}{len(lacking)}" if lacking else digest

    def _id_of(self, key: str | None) -> str | None:
        return self._ids.get(key) if key else None

    def _create(self, wanted: Wanted) -> StoredRun:
        created = datetime.now(UTC).isoformat(timespec="microseconds")
        tags = {KEY: wanted.key, SOURCE: wanted.source, CREATED: created}
        if parent := self._id_of(wanted.parent):
            tags[PARENT] = parent
        run = self._client.create_run(
            self._store.experiment_id, start_time=wanted.started, tags=tags, run_name=wanted.name
        )
        none: frozenset[str] = frozenset()
        return StoredRun(
            run.info.run_id,
            wanted.key,
            wanted.name,
            wanted.source,
            None,
            created,
            run.info.artifact_uri,
            "RUNNING",
            wanted.started,
            parent,
            none,
            none,
            none,
        )

    def _place(self, entry: StoredRun, wanted: Wanted) -> str | None:
        """Put the run below its parent, or at the top if it is to have none; return its parent's id."""
        parent = self._id_of(wanted.parent)
        if parent is not None and parent != entry.parent_id:
            self._client.set_tag(entry.run_id, PARENT, parent)
        elif wanted.parent is None and entry.parent_id is not None:
            self._client.delete_tag(entry.run_id, PARENT)
        return parent

    def _fill(self, entry: StoredRun, wanted: Wanted) -> None:
        if entry.source != wanted.source:
            self._client.set_tag(entry.run_id, SOURCE, wanted.source)
        if wanted.artifacts:
            self.left_out.pop(wanted.key, None)
            if too_large := store_artifacts(entry.artifacts, self._store.uri, wanted.artifacts):
                self.left_out[wanted.key] = too_large
        if wanted.data is not None:
            data = Dataset(wanted.data.name, wanted.data.digest, "config", wanted.data.source)
            context = [InputTag("mlflow.data.context", "training")]
            self._client.log_inputs(entry.run_id, datasets=[DatasetInput(data, tags=context)])
        if wanted.ended is not None:
            self._client.set_terminated(entry.run_id, status=wanted.status, end_time=wanted.ended)
        elif entry.status != wanted.status:
            self._client.update_run(entry.run_id, status=wanted.status)
        if entry.name != wanted.name:
            self._client.update_run(entry.run_id, name=wanted.name)
        for gone in entry.tags - _tags_after(entry, wanted):
            self._client.delete_tag(entry.run_id, gone)
        self._log(entry, wanted)

    def _log(self, entry: StoredRun, wanted: Wanted) -> None:
        points, published = _points(entry, wanted), self._mark(wanted.key, wanted.digest)
        params = [Param(name, value) for name, value in wanted.params.items() if name not in entry.params]
        tags = [RunTag(name, value) for name, value in wanted.tags.items()] + [RunTag(PUBLISHED, published)]
        batches = list(_chunks(points, _METRICS_PER_CALL)), list(_chunks(params, _PARAMS_PER_CALL))
        calls = max(len(batches[0]), len(batches[1]), 1)
        for number in range(calls):
            self._client.log_batch(
                entry.run_id,
                metrics=batches[0][number] if number < len(batches[0]) else (),
                params=batches[1][number] if number < len(batches[1]) else (),
                tags=tags if number == calls - 1 else (),
            )

    def _delete(self, run_id: str) -> None:
        try:
            self._client.delete_run(run_id)
        except MlflowException:
            if self._client.get_run(run_id).info.lifecycle_stage != "deleted":  # else another publisher was faster
                raise


def _continues(entry: StoredRun, wanted: Wanted) -> bool:
    """Return whether the entry is the same measurement: made from the same source, or seen while it ran."""
    if entry.source == wanted.source:
        return True
    seen_running = entry.source.startswith(RUNNING_SOURCE)
    return seen_running and abs(entry.started - wanted.started) < _SAME_START_MILLISECONDS


def _points(entry: StoredRun, wanted: Wanted) -> list[Metric]:
    """Return the points to log; an aggregate that no longer exists becomes NaN, since MLflow deletes no metric.

    MLflow shows the latest point. Aggregates change, so theirs are timed by the clock; a repeat's are timed by its end.
    """
    when = wanted.ended if wanted.parent and wanted.ended else round(time.time() * 1000)
    gone = entry.metrics - wanted.metrics.keys() - {point.name for point in wanted.curves} - {"steps_done"}
    values: Mapping[str, float] = {**wanted.metrics, **dict.fromkeys(gone, float("nan"))}
    scalars = [Metric(name, value, when, 0) for name, value in values.items()]
    return scalars + [Metric(point.name, point.value, point.timestamp, point.step) for point in wanted.curves]


def _as_wanted(entry: StoredRun, wanted: Wanted, parent: str | None, published: str) -> StoredRun:
    return StoredRun(
        run_id=entry.run_id,
        key=wanted.key,
        name=wanted.name,
        source=wanted.source,
        published=published,
        created=entry.created,
        artifacts=entry.artifacts,
        status=wanted.status,
        started=entry.started,
        parent_id=parent,
        params=entry.params | wanted.params.keys(),
        metrics=entry.metrics | wanted.metrics.keys(),
        tags=_tags_after(entry, wanted),
    )


def _tags_after(entry: StoredRun, wanted: Wanted) -> frozenset[str]:
    """Return the tags that the run is to have: the wanted ones, and those that MLflow and the publisher need."""
    kept = (tag for tag in entry.tags if tag.startswith(("accelsweep.", "mlflow.")))
    return frozenset(wanted.tags).union(kept)


def _chunks(items: list[Any], size: int) -> Iterator[list[Any]]:
    for start in range(0, len(items), size):
        yield items[start : start + size]
