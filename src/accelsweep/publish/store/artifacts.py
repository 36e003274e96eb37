"""Files of an MLflow run: after a folder is stored, it holds the new files and none of an earlier one.

Files go to the run's artifact repository, whose address is known since the run was created. MLflow's client would ask
the server for that address once more for each run. A repository adds files and deletes none. So what a report has lost
since is deleted after the new files stand.
"""

from __future__ import annotations

import accelsweep.publish.store.mlflow_settings  # noqa: F401 - before mlflow

# isort: split
import contextlib
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from mlflow.exceptions import MlflowException
from mlflow.store.artifact.artifact_repository_registry import get_artifact_repository

from accelsweep.publish.runs.wanted import Artifact


def store_artifacts(address: str, tracking_uri: str, artifacts: Iterable[Artifact]) -> None:
    """Store texts, files and folders at a run's address. Files of the run outside of those folders are left alone."""
    repository = get_artifact_repository(address, tracking_uri)
    for artifact in artifacts:
        _store(repository, artifact)


def _store(repository: Any, artifact: Artifact) -> None:
    if isinstance(artifact.source, str):
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / artifact.target
            path.write_text(artifact.source, "utf-8")
            repository.log_artifact(str(path))
    elif artifact.source.is_dir():
        _store_folder(repository, artifact.source, artifact.target)
        _delete_left_over(repository, artifact.source, artifact.target)
    else:
        repository.log_artifact(str(artifact.source), artifact.target or None)


def _store_folder(repository: Any, source: Path, target: str) -> None:
    """Store the files of a folder. Anything else is left out: a FIFO would be waited for, and a device has no end."""
    inside = sorted(source.rglob("*"))
    if all(path.is_file() or path.is_dir() for path in inside):
        repository.log_artifacts(str(source), target)
        return
    for path in filter(Path.is_file, inside):
        repository.log_artifact(str(path), (Path(target) / path.relative_to(source).parent).as_posix())


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
