"""While a run is measured, MLflow shows how far it is: its rank counts, the sweep's publisher reads and copies."""

from __future__ import annotations

import pytest

pytestmark = pytest.mark.real


def test_the_steps_of_a_running_run_are_counted_in_mlflow(home):
    from mlflow import MlflowClient
    from mlflow.entities import ViewType

    longer = ("measure.min_seconds=12", "measure.max_steps=10000000")
    result = home.accelsweep("run", "experiment=tiny", "batch_size=16", "repeats=1", *longer)
    assert result.returncode == 0, result.stdout
    client = MlflowClient(f"sqlite:///{home.path / 'mlflow.db'}")
    experiment = client.get_experiment_by_name("tiny").experiment_id
    (run,) = client.search_runs([experiment], "tags.kind = 'run'", ViewType.ALL)  # it is the one that was seen running
    seen = [point.value for point in client.get_metric_history(run.info.run_id, "steps_done") if point.value]
    assert len(seen) > 1
    assert seen == sorted(set(seen))
    assert seen[-1] <= run.data.metrics["window_steps"] + 3
