"""Brings MLflow runs to their desired state, one by one, so that the process can be killed and rerun at any point.

A run is created with its key and source, then filled and ended. Its digest is written last, so a run with a digest is
complete. Filling is idempotent: params are only added, and metric points use the record's timestamps.
"""

from __future__ import annotations

import accelsweep.tracking.mlflow_settings  # noqa: F401 - before mlflow

# isort: split
import contextlib
import tempfile
import time
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from itertools import zip_longest
from pathlib import Path
from typing import Any

from mlflow.entities import Dataset, DatasetInput, InputTag, Metric, Param, RunTag
from mlflow.exceptions import MlflowException
from mlflow.store.artifact.artifact_repository_registry import get_artifact_repository

from accelsweep.plain_json import sha256_text
from accelsweep.tracking.mlflow_run import (
    CREATED_TAG,
    KEY_TAG,
    PARENT_TAG,
    PUBLISHED_TAG,
    SOURCE_TAG,
    Artifact,
    MlflowRun,
)
from accelsweep.tracking.repeat_runs import RUNNING_SOURCE
from accelsweep.tracking.store import Store, StoredRun
from accelsweep.tracking.store_errors import HTTP_TOO_LARGE, http_status

_METRICS_PER_CALL = 900
_PARAMS_PER_CALL = 90
_SAME_START_MILLISECONDS = 1000


class RunWriter:
    """Writes to one experiment. It tracks the store's contents on the assumption that it is the only writer."""

    def __init__(
        self, store: Store, stored: dict[str, list[StoredRun]], too_large: dict[str, list[str]] | None = None
    ) -> None:
        """`stored` contains the store's current runs (`store.list_runs()`).

        `too_large` lists, by run key, the artifacts that the store rejected in an earlier pass; they are not sent
        again.
        """
        self._store = store
        self._client = store.client
        self.experiment_id = store.experiment_id
        self.stored = stored
        self._ids = {key: duplicates[0].run_id for key, duplicates in stored.items()}
        self.written = 0
        """The number of runs that were created, changed or deleted."""
        self.too_large = {} if too_large is None else too_large

    def has(self, key: str, source: str, digest: str, parent: str | None) -> bool:
        """Return whether exactly one run has this key, and that run is complete and has this parent."""
        stored = self.stored.get(key, [])
        return (
            len(stored) == 1
            and (stored[0].source, stored[0].published) == (source, self._published(key, digest))
            and stored[0].parent_id == self.id_of(parent)
        )

    def write(self, desired: MlflowRun) -> None:
        """Create, complete or replace the run, and delete all other runs with its key (restorable in MLflow)."""
        if self.has(desired.key, desired.source, desired.digest, desired.parent):
            return
        duplicates = self.stored.get(desired.key, [])
        stored = next((run for run in duplicates if _is_same_measurement(run, desired)), None) or self._create(desired)
        parent = self.id_of(desired.parent)
        if parent is not None and parent != stored.parent_id:
            self._client.set_tag(stored.run_id, PARENT_TAG, parent)
        elif desired.parent is None and stored.parent_id is not None:
            self._client.delete_tag(stored.run_id, PARENT_TAG)
        if (stored.source, stored.published) != (desired.source, self._published(desired.key, desired.digest)):
            self._fill(stored, desired)
        for other in duplicates:
            if other.run_id != stored.run_id:
                self._delete(other.run_id)
        self.written += 1
        self._ids[desired.key] = stored.run_id
        self.stored[desired.key] = [
            replace(
                stored,
                name=desired.name,
                source=desired.source,
                published=self._published(desired.key, desired.digest),
                status=desired.status,
                parent_id=parent,
                params=stored.params | desired.params.keys(),
                metrics=stored.metrics | desired.metrics.keys(),
                tags=_tags_after(stored, desired),
            )
        ]

    def remove(self, key: str) -> None:
        """Delete the run with this key, if there is one (restorable in MLflow)."""
        for run in self.stored.pop(key, []):
            self._delete(run.run_id)
            self.written += 1
        self._ids.pop(key, None)

    def log_progress(self, key: str, step: int) -> None:
        """Log the number of finished steps of a run in progress as `steps_done`."""
        self._client.log_metric(self._ids[key], "steps_done", float(step), step=step)

    def kill_abandoned(self, keys: Collection[str]) -> None:
        """Mark as KILLED all runs that the store lists as running, except those whose key is in `keys`.

        The digest is invalidated first, so that the run is rewritten if the publisher dies at this point and the run is
        later resumed.
        """
        for run in [run for duplicates in self.stored.values() for run in duplicates]:
            if run.status == "RUNNING" and run.key not in keys:
                self._client.set_tag(run.run_id, PUBLISHED_TAG, "abandoned")
                self._client.set_tag(run.run_id, "outcome", "not_run")
                self._client.set_terminated(run.run_id, status="KILLED")
                self.written += 1

    def _published(self, key: str, digest: str) -> str:
        """Return the digest with which to tag the run; a suffix marks a run that lacks artifacts."""
        missing = self.too_large.get(key)
        return f"{digest} without {len(missing)}" if missing else digest

    def id_of(self, key: str | None) -> str | None:
        """Return the ID of the run with this key, if there is one."""
        return self._ids.get(key) if key else None

    def _create(self, desired: MlflowRun) -> StoredRun:
        created = datetime.now(UTC).isoformat(timespec="microseconds")
        tags = {KEY_TAG: desired.key, SOURCE_TAG: desired.source, CREATED_TAG: created}
        if parent := self.id_of(desired.parent):
            tags[PARENT_TAG] = parent
        run = self._client.create_run(self.experiment_id, start_time=desired.started, tags=tags, run_name=desired.name)
        return StoredRun(
            run_id=run.info.run_id,
            key=desired.key,
            name=desired.name,
            source=desired.source,
            published=None,
            created=created,
            artifacts=run.info.artifact_uri,
            status="RUNNING",
            started=desired.started,
            parent_id=parent,
        )

    def _fill(self, stored: StoredRun, desired: MlflowRun) -> None:
        if stored.source != desired.source:
            self._client.set_tag(stored.run_id, SOURCE_TAG, desired.source)
        if desired.artifacts:
            self.too_large.pop(desired.key, None)
            if too_large := _store_artifacts(stored.artifacts, self._store.uri, desired.artifacts):
                self.too_large[desired.key] = too_large
        if desired.data is not None:
            name, config = desired.data
            data = Dataset(name, sha256_text(config)[:12], "config", config)
            context = [InputTag("mlflow.data.context", "training")]
            self._client.log_inputs(stored.run_id, datasets=[DatasetInput(data, tags=context)])
        if desired.ended is not None:
            self._client.set_terminated(stored.run_id, status=desired.status, end_time=desired.ended)
        elif stored.status != desired.status:
            self._client.update_run(stored.run_id, status=desired.status)
        if stored.name != desired.name:
            self._client.update_run(stored.run_id, name=desired.name)
        for obsolete in stored.tags - _tags_after(stored, desired):
            self._client.delete_tag(stored.run_id, obsolete)
        new_params = [Param(name, value) for name, value in desired.params.items() if name not in stored.params]
        tags = {**desired.tags, PUBLISHED_TAG: self._published(desired.key, desired.digest)}
        metrics = _chunks(_metric_points(stored, desired), _METRICS_PER_CALL)
        batches = list(zip_longest(metrics, _chunks(new_params, _PARAMS_PER_CALL), fillvalue=())) or [((), ())]
        for number, (metric_batch, param_batch) in enumerate(batches, start=1):
            self._client.log_batch(
                stored.run_id,
                metrics=metric_batch,
                params=param_batch,
                tags=[RunTag(*tag) for tag in tags.items()] if number == len(batches) else (),
            )

    def _delete(self, run_id: str) -> None:
        try:
            self._client.delete_run(run_id)
        except MlflowException:  # another publisher may have deleted it
            if self._client.get_run(run_id).info.lifecycle_stage != "deleted":
                raise


def _is_same_measurement(stored: StoredRun, desired: MlflowRun) -> bool:
    """Return whether the stored run has the same source, or was stored while the run was being measured."""
    if stored.source == desired.source:
        return True
    stored_while_running = stored.source.startswith(RUNNING_SOURCE)
    return stored_while_running and abs(stored.started - desired.started) < _SAME_START_MILLISECONDS


def _metric_points(stored: StoredRun, desired: MlflowRun) -> list[Metric]:
    """Return the points to log; an aggregate that no longer exists becomes NaN, since MLflow cannot delete metrics.

    MLflow shows the latest point. Aggregates change, so their points use the current time; a repeat's metrics use its
    end time.
    """
    timestamp = desired.ended if desired.parent and desired.ended else round(time.time() * 1000)
    withdrawn = stored.metrics - desired.metrics.keys() - {point.name for point in desired.curves} - {"steps_done"}
    values: Mapping[str, float] = {**desired.metrics, **dict.fromkeys(withdrawn, float("nan"))}
    scalars = [Metric(name, value, timestamp, 0) for name, value in values.items()]
    return scalars + [Metric(point.name, point.value, point.timestamp, point.step) for point in desired.curves]


def _tags_after(stored: StoredRun, desired: MlflowRun) -> frozenset[str]:
    """Return the tags that the run should have: the desired ones, plus those set by MLflow and the publisher."""
    internal = (tag for tag in stored.tags if tag.startswith(("accelsweep.", "mlflow.")))
    return frozenset(desired.tags).union(internal)


def _chunks(items: Sequence[Any], size: int) -> Iterator[Sequence[Any]]:
    for start in range(0, len(items), size):
        yield items[start : start + size]


def _store_artifacts(uri: str, tracking_uri: str, artifacts: Iterable[Artifact]) -> list[str]:
    """Store texts, files and folders as a run's artifacts; files missing from a folder are deleted from the store.

    Returns the names and sizes of files that the server, or a proxy in front of it, rejected as too large.
    """
    repository: Any = get_artifact_repository(uri, tracking_uri)
    too_large: list[str] = []
    for artifact in artifacts:
        source, target = artifact.source, artifact.target
        if isinstance(source, str):
            with tempfile.TemporaryDirectory() as folder:
                path = Path(folder) / target
                path.write_text(source, "utf-8")
                _upload(repository, path, "", too_large)
        elif source.is_dir():
            files = artifact.files()
            for path in files:
                _upload(repository, path, (Path(target) / path.relative_to(source).parent).as_posix(), too_large)
            current = {f"{target}/{path.relative_to(source).as_posix()}" for path in files}
            for obsolete in [path for path in _list_files(repository, target) if path not in current]:
                with contextlib.suppress(NotImplementedError, MlflowException, OSError):  # some stores cannot delete
                    repository.delete_artifacts(obsolete)
        else:
            _upload(repository, source, target, too_large)
    return too_large


def _upload(repository: Any, path: Path, target: str, too_large: list[str]) -> None:
    try:
        repository.log_artifact(str(path), target or None)
    except (MlflowException, OSError) as error:
        if http_status(error) != HTTP_TOO_LARGE:
            raise
        too_large.append(f"{target}/{path.name}".lstrip("/") + f" ({path.stat().st_size / 1e6:.1f} MB)")


def _list_files(repository: Any, folder: str) -> Iterator[str]:
    for item in repository.list_artifacts(folder):
        if item.is_dir:
            yield from _list_files(repository, item.path)
        else:
            yield item.path
