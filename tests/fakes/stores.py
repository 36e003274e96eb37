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


class StoreContents(Mapping[str, dict[str, Any]]):
    """The runs of an experiment by key, without ids, times of publication and digests of settings, which cover ids.

    The metric histories and artifacts of a run are fetched lazily, on access: tests poll a store hundreds of times.
    `dict(contents)` fetches all of them.
    """

    def __init__(self, client: Any, runs: Mapping[str, Any]) -> None:
        """`runs` are those of MLflow, by key."""
        self._client, self._runs = client, runs
        self._keys = {run.info.run_id: key for key, run in runs.items()}

    def __iter__(self) -> Iterator[str]:
        return iter(self._runs)

    def __len__(self) -> int:
        return len(self._runs)

    def __getitem__(self, key: str) -> dict[str, Any]:
        run = self._runs[key]
        histories = {name: self._client.get_metric_history(run.info.run_id, name) for name in run.data.metrics}
        has_clock_times = not key.startswith("run:")
        own_tags = {CREATED_TAG, PARENT_TAG} | ({PUBLISHED_TAG} if key.startswith("setting:") else set())
        return {
            "name": run.info.run_name,
            "status": run.info.status,
            "started": run.info.start_time,
            "ended": run.info.end_time,
            "tags": {name: _without_ids(name, tag) for name, tag in run.data.tags.items() if name not in own_tags},
            "params": run.data.params,
            "metrics": {
                name: [(point.step, point.value) + (() if has_clock_times else (point.timestamp,)) for point in points]
                for name, points in histories.items()
            },
            "artifacts": sorted(item.path for item in self._client.list_artifacts(run.info.run_id)),
            "data": [item.dataset.name for item in run.inputs.dataset_inputs],
            "parent": self._keys.get(run.data.tags.get(PARENT_TAG)),
        }


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
