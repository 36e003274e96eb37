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
from accelsweep.publish.store.refusals import TOO_LARGE, status_of


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
