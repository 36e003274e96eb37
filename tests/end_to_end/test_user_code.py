"""The user's own classes, from the working directory to the report."""

import sqlite3

import pytest
from unusual_home import records_by_case

from accelsweep.records.estimates import Verdict
from accelsweep.records.findings import Findings
from accelsweep.records.layout import SweepFolder
from accelsweep.records.run_record import Record
from accelsweep.results import Outcome

pytestmark = pytest.mark.real


def test_modules_and_data_of_ones_own_run_by_their_names_alone(unusual):
    home, ended = unusual
    assert "applies only if mine.Module leaves configure_optimizers to accelsweep" in ended.stdout
    record = records_by_case(home)["well"]
    assert record.outcome is Outcome.measured
    assert (record.config.model["_target_"], record.config.data["_target_"]) == ("mine.Module", "mine.Data")
    assert record.effective.optimizer == "AdamW"
    assert "case=well" in ended.stdout


def test_their_data_is_prepared_by_a_fork_of_the_one_process_that_imports_torch(unusual):
    home, _ = unusual
    log = SweepFolder(home.path, "unusual").snakemake_log.read_text()
    assert "data modules are ready" in log
    assert "imports torch itself" not in log


TREES = """
class Trees:
    def fit(self, features, labels):
        self.mean = [features[labels == one].mean(axis=0) for one in (0, 1)]

    def predict(self, features):
        return features @ (self.mean[1] - self.mean[0])

    def count(self):
        return 1
"""
SHORT = ("measure=boosting", "measure.min_seconds=0.1", "data=made_rows", "data.rows=3000", "threads=1", "repeats=2")


@pytest.mark.long  # tests/features/boosting and projection cover the parts; only here they meet
def test_libraries_of_trees_go_the_whole_road_and_so_does_one_of_ones_own(home):
    for library in ("xgboost", "lightgbm"):
        pytest.importorskip(library)
    first = ("experiment=boosting", "accelerator=cpu", "model.rounds=5", "baseline=null")
    told = home.accelsweep("run", *first, *SHORT)
    folder = SweepFolder(home.path, "boosting")
    found = Findings.read(folder.findings)
    assert [setting.verdict is not Verdict.not_measured for setting in found.settings] == [True] * 3, told.stdout
    assert (found.rate_metric, found.rate_unit) == ("row_rounds_per_second", "row rounds/s")
    report = (folder.report / "report.md").read_text()
    assert "not projected: boosted trees are trained by other libraries" in report
    assert "| AUC |" in report
    with sqlite3.connect(home.path / "mlflow.db") as store:
        kept = {name for (name,) in store.execute("select distinct key from metrics")}
    assert {"row_rounds_per_second", "boosting_rounds", "quality"} <= kept
    home.module("mine", TREES)
    home.accelsweep("run", "task=boosting", "model._target_=mine.Trees", "accelerator=cpu", *SHORT, "--name", "own")
    records = [Record.read(path) for path in SweepFolder(home.path, "own").root.glob("runs/*/record.json")]
    assert [record.outcome for record in records] == [Outcome.measured] * 2
    assert set(records[0].fingerprint.sources) == {"accelsweep.features.boosting", "accelsweep.workloads", "mine"}
