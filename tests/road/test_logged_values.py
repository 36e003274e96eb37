"""What happens to the values that a user's module logs, in both loops: `self.log`, `self.logger` and `mlflow.*`."""

import pytest

from accelsweep.core.outcome import Outcome
from accelsweep.core.plans import Manifest
from accelsweep.core.record import Record
from accelsweep.state.folders import SweepFolder

pytestmark = pytest.mark.real

WARMUP_STEPS = 3

MINE = """\
import mlflow
from accelsweep.workloads.models import SmallCNN


class Talkative(SmallCNN):
    def training_step(self, batch, batch_index):
        self.logger.experiment.add_scalar("never", 1.0)
        self.logger.log_metrics({"never": 1.0})
        self.log("train/steps seen", float(batch_index), prog_bar=True)
        self.log_dict({"constant": 2.5, "broken": float("nan")})
        if batch_index == 0:
            mlflow.log_metric("mine", 7.0)
        return super().training_step(batch, batch_index)
"""


def test_what_a_module_logs_reaches_mlflow_and_its_own_mlflow_calls_go_their_own_way(home):
    from mlflow import MlflowClient

    home.module("mine", MINE)
    result = home.accelsweep(
        "run", "experiment=tiny", "batch_size=16", "repeats=1", "model._target_=mine.Talkative", "loop=lightning,raw"
    )
    assert result.returncode == 0, result.stdout
    folder = SweepFolder(home.path, "tiny")
    records = [Record.read(folder.record(run)) for run in Manifest.read(folder.manifest).wanted_runs()]
    assert [record.outcome for record in records] == [Outcome.measured] * 2
    client = MlflowClient(f"sqlite:///{home.path / 'mlflow.db'}")
    experiments = {experiment.name: experiment.experiment_id for experiment in client.search_experiments()}
    ours = client.search_runs([experiments["tiny"]], "tags.kind = 'run'")
    assert len(ours) == 2
    for run in ours:
        steps = run.data.metrics["window_steps"] + WARMUP_STEPS
        assert run.data.metrics["logged.train/steps seen"] == steps - 1
        assert run.data.metrics["logged.constant"] == 2.5
        assert "logged.broken" not in run.data.metrics
        assert "`logged.broken`: the module logged nan" in run.data.tags["mlflow.note.content"]
        assert not {"mine", "never", "logged.never"} & set(run.data.metrics)
    own = client.search_runs([experiments["Default"]])
    assert [run.data.metrics for run in own] == [{"mine": 7.0}] * 2
    assert {run.info.status for run in own} == {"RUNNING"}
