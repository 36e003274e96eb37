"""MLflow's stores: the two kinds, for tests where they could differ, and what one of them holds of a sweep."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from accelsweep.records.layout import SweepFolder
from accelsweep.tracking.mlflow_run import KEY, PARENT

BOTH_STORES = pytest.mark.parametrize("uri", ["sqlite", "http"], indirect=True)
"""A SQLite file, then a server over HTTP: for artifacts and names."""

# the server costs a minute, and the tests with BOTH_STORES see what it does to each call
BOTH_STORES_AT_LENGTH = pytest.mark.parametrize(
    "uri", ["sqlite", pytest.param("http", marks=pytest.mark.long)], indirect=True
)
"""The same, with the server in `make test-long` only."""


class StoreContents(Mapping[str, dict[str, Any]]):
    """The runs of an experiment by key. A store is asked hundreds of times for all that it holds of a sweep.

    So the points and the files of a run are asked for when it is looked at: `dict(held)` looks at all of them.
    """

    def __init__(self, client: Any, runs: Mapping[str, Any]) -> None:
        """`runs` are MLflow's, by key."""
        self._client, self._runs = client, runs
        self._keys = {run.info.run_id: key for key, run in runs.items()}

    def __iter__(self) -> Iterator[str]:
        return iter(self._runs)

    def __len__(self) -> int:
        return len(self._runs)

    def __getitem__(self, key: str) -> dict[str, Any]:
        run = self._runs[key]
        histories = {name: self._client.get_metric_history(run.info.run_id, name) for name in run.data.metrics}
        clocked = not key.startswith("run:")
        return {
            "name": run.info.run_name,
            "status": run.info.status,
            "started": run.info.start_time,
            "ended": run.info.end_time,
            "tags": {name: tag for name, tag in run.data.tags.items() if name not in ("accelsweep.created", PARENT)},
            "params": run.data.params,
            "metrics": {
                name: [(point.step, point.value) + (() if clocked else (point.timestamp,)) for point in points]
                for name, points in histories.items()
            },
            "artifacts": sorted(item.path for item in self._client.list_artifacts(run.info.run_id)),
            "data": [item.dataset.name for item in run.inputs.dataset_inputs],
            "parent": self._keys.get(run.data.tags.get(PARENT)),
        }


def held_by(folder: SweepFolder, uri: str) -> StoreContents:
    """Return what the store holds of a sweep; fails if anything stands there twice."""
    from mlflow import MlflowClient

    client = MlflowClient(uri)
    experiment = client.get_experiment_by_name(folder.name)
    runs = client.search_runs([experiment.experiment_id]) if experiment else []
    by_key = {run.data.tags[KEY]: run for run in runs}
    assert len(by_key) == len(runs), "a run stands in the store twice"
    return StoreContents(client, by_key)
