"""While a run is measured, MLflow shows how far it is: its rank counts, the sweep's publisher reads and copies."""

from __future__ import annotations

import pytest
from unusual_home import WARMUP_STEPS, records_by_case

pytestmark = pytest.mark.real


def test_the_steps_of_a_running_run_are_counted_in_mlflow(unusual):
    from mlflow import MlflowClient
    from mlflow.entities import ViewType

    home, _ = unusual
    lasting = records_by_case(home)["lasting"]
    client = MlflowClient(f"sqlite:///{home.path / 'mlflow.db'}")
    experiment = client.get_experiment_by_name("unusual").experiment_id
    (run,) = client.search_runs([experiment], f"tags.run = '{lasting.run}'", ViewType.ALL)  # the one seen running
    seen = [point.value for point in client.get_metric_history(run.info.run_id, "steps_done") if point.value]
    assert len(seen) > 1
    assert seen == sorted(set(seen))
    assert seen[-1] <= run.data.metrics["window_steps"] + WARMUP_STEPS
