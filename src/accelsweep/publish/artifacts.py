"""Files of an MLflow run: after a folder is stored, it holds the new files and none of an earlier one.

A report that is published again may have lost a figure. MLflow's client adds files and deletes none. So old files are
deleted through the store's artifact repository, after the new files stand.
"""

from __future__ import annotations

import accelsweep.publish.mlflow_settings  # noqa: F401 - before mlflow

# isort: split
import contextlib
from collections.abc import Iterator
from pathlib import Path

from mlflow import MlflowClient
from mlflow.exceptions import MlflowException
from mlflow.store.artifact.artifact_repository_registry import get_artifact_repository

from accelsweep.publish.wanted import Artifact


def store_artifact(client: MlflowClient, run_id: str, artifact: Artifact) -> None:
    """Store a text, a file or a folder with the run. Files of the run outside of that folder are left alone."""
    if isinstance(artifact.source, str):
        client.log_text(run_id, artifact.source, artifact.target)
    elif artifact.source.is_dir():
        _store_folder(client, run_id, artifact.source, artifact.target)
        _delete_left_over(client, run_id, artifact.source, artifact.target)
    else:
        client.log_artifact(run_id, str(artifact.source), artifact.target or None)


def _store_folder(client: MlflowClient, run_id: str, source: Path, target: str) -> None:
    """Store the files of a folder. What is none is left out: a FIFO would be waited for, and a device has no end."""
    inside = sorted(source.rglob("*"))
    if all(path.is_file() or path.is_dir() for path in inside):
        client.log_artifacts(run_id, str(source), target)
        return
    for path in filter(Path.is_file, inside):
        client.log_artifact(run_id, str(path), (Path(target) / path.relative_to(source).parent).as_posix())


def _delete_left_over(client: MlflowClient, run_id: str, source: Path, target: str) -> None:
    """Delete files of the run's folder `target` that are not in `source`; a store that cannot delete keeps them."""
    wanted = {f"{target}/{path.relative_to(source).as_posix()}" for path in source.rglob("*") if path.is_file()}
    stale = [path for path in _files(client, run_id, target) if path not in wanted]
    if not stale:
        return
    repository = get_artifact_repository(client.get_run(run_id).info.artifact_uri, client.tracking_uri)
    for path in stale:
        with contextlib.suppress(NotImplementedError, MlflowException, OSError):
            repository.delete_artifacts(path)  # type: ignore[no-untyped-call]  # mlflow has no type hints there


def _files(client: MlflowClient, run_id: str, folder: str) -> Iterator[str]:
    for item in client.list_artifacts(run_id, folder):
        if item.is_dir:
            yield from _files(client, run_id, item.path)
        else:
            yield item.path
