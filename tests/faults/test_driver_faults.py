"""Faults of everything above the executor that take more than one driver, or code of the user's that misbehaves.

What is killed, damaged or full anywhere in a sweep is drawn in `storm/`.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest
from home import Home
from polling import PATIENCE_SECONDS, until
from record_audit import HeadLedger

from accelsweep.results import Outcome

pytestmark = pytest.mark.real

Inject = Callable[[str], None]

ONE_RUN = ("repeats=1", "batch_size=16", "model._target_=mine.Slow")

MINE = """\
import os, time
from accelsweep.workloads.datasets import Digits
from accelsweep.workloads.image_models import SmallCNN


class Hanging(Digits):
    def train_dataloader(self):
        time.sleep(1000)


class Slow(SmallCNN):
    def training_step(self, batch, batch_index):
        time.sleep(0.05)
        return super().training_step(batch, batch_index)


class Dying(SmallCNN):
    def training_step(self, batch, batch_index):
        if os.environ["RANK"] == "1" and batch_index == 5:
            os._exit(9)
        return super().training_step(batch, batch_index)
"""

BOTH = "{when:{model._target_:mine.Dying,data._target_:mine.Hanging},because:one_fault_at_a_time}"


@pytest.mark.long  # driver/test_sweep_lock.py refuses it, storms kill drivers
def test_a_second_driver_is_refused_and_an_executor_that_outlived_its_driver_is_waited_for(
    home: Home, inject: Inject
) -> None:
    home.module("mine", MINE)
    ledger = HeadLedger(home, *ONE_RUN, "measure.min_steps=240", "measure.max_steps=240", "measure.min_seconds=0")
    driver = home.start(*ledger.command)
    until(ledger.running)
    planned = ledger.folder.manifest.read_bytes()
    refused = home.accelsweep("run", "experiment=tiny")
    assert refused.returncode == 1, refused.stdout
    assert "--cancel-old" in refused.stdout
    assert ledger.folder.manifest.read_bytes() == planned, "a refused command changed the plan of another"
    driver.kill()
    driver.wait()
    (orphan,) = home.executors()
    ledger.complete()
    assert [record.attempt for record in ledger.records()] == [1], f"the run of orphan {orphan} was not waited for"
    inject("orphan executor waited for")


@pytest.mark.long  # tests/driver/test_sweep_lock.py ends drivers and orphans; only here they are those of a whole sweep
def test_cancel_old_ends_the_living_driver_and_its_executor(home: Home, inject: Inject) -> None:
    home.module("mine", MINE)
    ledger = HeadLedger(home, *ONE_RUN)
    driver = home.start(
        *ledger.command, "measure.min_steps=100000", "measure.max_steps=100000", "measure.min_seconds=0"
    )
    until(ledger.running)
    output = ledger.complete("--cancel-old")
    assert f"sending SIGINT to process {driver.pid}" in output
    assert driver.wait(PATIENCE_SECONDS) == 130
    inject("living driver ended by --cancel-old")


@pytest.mark.long  # faults/test_executor_faults.py, tracking/test_live_publishing.py cover each; they meet here only
def test_what_hangs_dies_or_does_not_answer_costs_its_own_row_only(home: Home, inject: Inject) -> None:
    home.module("mine", MINE)
    home.environment["MLFLOW_TRACKING_URI"] = "http://me:hunter2@127.0.0.1:9"
    digits, small = "accelsweep.workloads.datasets.Digits", "accelsweep.workloads.image_models.SmallCNN"
    result = home.accelsweep(
        "run", "experiment=tiny", "batch_size=16", "repeats=1", "devices=2", f"model._target_={small},mine.Dying",
        f"data._target_={digits},mine.Hanging", f"exclude=[{BOTH}]", "limits.run_seconds=20", "limits.retries=0",
    )  # fmt: skip
    assert result.returncode == 1, result.stdout
    ledger = HeadLedger(home)
    outcomes = {one.axes["data._target_"] + one.axes["model._target_"]: one for one in ledger.records()}
    assert outcomes[digits + small].outcome is Outcome.measured, outcomes
    assert outcomes["mine.Hanging" + small].outcome is Outcome.timed_out
    assert "limits.run_seconds" in str(outcomes["mine.Hanging" + small].reason)
    dead = outcomes[digits + "mine.Dying"]
    assert dead.outcome is Outcome.crashed
    assert "rank 1: os._exit(9) was called in training_step" in str(dead.reason)
    assert result.stdout.count("MLflow is incomplete: MLflow at http://***@127.0.0.1:9") == 1
    early = "MLflow at http://***@127.0.0.1:9 does not answer (Connection refused); the sweep goes on"
    assert result.stdout.index(early) < result.stdout.index("MLflow is incomplete"), "while runs are measured"
    assert "accelsweep publish tiny" in result.stdout
    assert "hunter2" not in result.stdout + ledger.logs()
    assert (ledger.folder.report / "index.html").exists()
    for what in ("hung data loader", "rank that dies in a collective", "MLflow unreachable"):
        inject(what)
