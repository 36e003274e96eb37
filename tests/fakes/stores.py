"""The two kinds of MLflow stores, for tests where they could differ, and the runs of a sweep in one of them."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from accelsweep.records.layout import SweepFolder
from accelsweep.tracking.mlflow_run import CREATED_TAG, KEY_TAG, NOTE_TAG, PARENT_TAG, PUBLISHED_TAG

BOTH_STORES = pytest.mark.parametrize("uri", ["sqlite", "http"], indirect=True)
"""Parametrizes a test with a SQLite file and a server: for artifacts and names."""

# the server takes a minute, and the tests with BOTH_STORES cover each of its calls
BOTH_STORES_AT_LENGTH = pytest.mark.parametrize(
    "uri", ["sqlite", pytest.param("http", marks=pytest.mark.long)], indirect=True
)
"""The same, with the server only in `make test-long`."""


class RunContents(Mapping[str, Any]):
    """A run without ids, times of publication and digests of settings, which cover ids.

    Metric histories and artifacts are fetched when somebody looks at them: tests poll a store hundreds of times.
    """

    def __init__(self, client: Any, run: Any, parent: str | None) -> None:
        """`run` is MLflow's, `parent` the key of the run that it is nested below."""
        self._client, self._run = client, run
        self._key = key = run.data.tags[KEY_TAG]
        own_tags = {CREATED_TAG, PARENT_TAG} | ({PUBLISHED_TAG} if key.startswith("setting:") else set())
        tags = {name: _without_ids(name, tag) for name, tag in run.data.tags.items() if name not in own_tags}
        self._known = {
            "name": run.info.run_name,
            "status": run.info.status,
            "started": run.info.start_time,
            "ended": run.info.end_time,
            "tags": tags,
            "params": run.data.params,
            "data": [item.dataset.name for item in run.inputs.dataset_inputs],
            "parent": parent,
        }
        self._fetched = {"metrics": self._metrics, "artifacts": self._artifacts}

    def __iter__(self) -> Iterator[str]:
        return iter((*self._known, *self._fetched))

    def __len__(self) -> int:
        return len(self._known) + len(self._fetched)

    def __getitem__(self, name: str) -> Any:
        return self._fetched[name]() if name in self._fetched else self._known[name]

    def _metrics(self) -> dict[str, list[tuple[Any, ...]]]:
        run_id, has_clock_times = self._run.info.run_id, not self._key.startswith("run:")
        histories = {name: self._client.get_metric_history(run_id, name) for name in self._run.data.metrics}
        return {
            name: [(point.step, point.value) + (() if has_clock_times else (point.timestamp,)) for point in points]
            for name, points in histories.items()
        }

    def _artifacts(self) -> list[str]:
        return sorted(item.path for item in self._client.list_artifacts(self._run.info.run_id))


class StoreContents(Mapping[str, RunContents]):
    """The runs of an experiment by key."""

    def __init__(self, client: Any, runs: Mapping[str, Any]) -> None:
        """`runs` are those of MLflow, by key."""
        self._client, self._runs = client, runs
        self._keys = {run.info.run_id: key for key, run in runs.items()}

    def __iter__(self) -> Iterator[str]:
        return iter(self._runs)

    def __len__(self) -> int:
        return len(self._runs)

    def __getitem__(self, key: str) -> RunContents:
        run = self._runs[key]
        return RunContents(self._client, run, self._keys.get(run.data.tags.get(PARENT_TAG)))


def whole(contents: StoreContents) -> dict[str, dict[str, Any]]:
    """Return all that there is to fetch."""
    return {key: dict(run) for key, run in contents.items()}


def _without_ids(name: str, tag: str) -> str:
    """Return a tag; a description's links to the report, which hold ids, are named `report`."""
    return re.sub(r"\(#/experiments/\w+/runs/[^)]*\)", "(report)", tag) if name == NOTE_TAG else tag


def read_runs(folder: SweepFolder, uri: str) -> StoreContents:
    """Return the runs of a sweep in the store; fails if a key occurs twice."""
    from mlflow import MlflowClient

    client = MlflowClient(uri)
    experiment = client.get_experiment_by_name(folder.name)
    runs = client.search_runs([experiment.experiment_id]) if experiment else []
    by_key = {run.data.tags[KEY_TAG]: run for run in runs}
    assert len(by_key) == len(runs), "a run is in the store twice"
    return StoreContents(client, by_key)
