"""The user's own classes, from the working directory to the report."""

import pytest
from unusual_home import records_by_case

from accelsweep.core.outcome import Outcome
from accelsweep.state.folders import SweepFolder

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
