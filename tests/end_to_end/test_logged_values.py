"""What happens to the values that a user's module logs, in both loops: `self.log`, `self.logger` and `mlflow.*`."""

import pytest
from unusual_home import WARMUP_STEPS, records_by_case

from accelsweep.results import Outcome

pytestmark = pytest.mark.real


def test_what_a_module_logs_reaches_mlflow_and_its_own_mlflow_calls_go_their_own_way(unusual):
    from mlflow import MlflowClient

    home, _ = unusual
    records = [records_by_case(home)[case] for case in ("talkative", "talkative_raw")]
    assert [record.outcome for record in records] == [Outcome.measured] * 2
    client = MlflowClient(f"sqlite:///{home.path / 'mlflow.db'}")
    experiments = {experiment.name: experiment.experiment_id for experiment in client.search_experiments()}
    for record in records:
        (run,) = client.search_runs([experiments["unusual"]], f"tags.run = '{record.run}'")
        steps = run.data.metrics["window_steps"] + WARMUP_STEPS
        assert run.data.metrics["logged.train/steps seen"] == steps - 1
        assert run.data.metrics["logged.constant"] == 2.5
        assert "logged.broken" not in run.data.metrics
        assert "`logged.broken`: the module logged nan" in run.data.tags["mlflow.note.content"]
        assert not {"mine", "never", "logged.never"} & set(run.data.metrics)
    own = client.search_runs([experiments["Default"]])
    assert [run.data.metrics for run in own] == [{"mine": 7.0}] * 2
    assert {run.info.status for run in own} == {"RUNNING"}
