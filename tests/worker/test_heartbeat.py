"""The heartbeat: it counts steps within a pass and pauses before anything that has no steps."""

from __future__ import annotations

import itertools
import sys
from dataclasses import replace

import pytest
from one_rank import BOTH_LOOPS, MEASURE, SGD
from own_models import PRELUDE

from accelsweep.heartbeat import HeartbeatReader
from accelsweep.worker.rank_setup import COLLECTIVE_TIMEOUT, WATCHDOG_MARGIN, collective_timeout

NUMBERS = itertools.count()
BATCHES, BATCH_SIZE = 5, 8
QUICK = {**MEASURE, "min_seconds": 0.0, "probe_steps": 2, "quality_samples": 64, "quality_metric": "val_accuracy"}

LISTENING = """
from pathlib import Path
from accelsweep.records.sweep_progress import HeartbeatReader

STEPS, VALIDATIONS = [], []

class Listening(Module):
    def training_step(self, batch, batch_idx):
        STEPS.append((HeartbeatReader(Path("heartbeat-0")).steps, batch_idx % 5))
        return super().training_step(batch, batch_idx)

    def validation_step(self, batch, batch_idx):
        VALIDATIONS.append(HeartbeatReader(Path("heartbeat-0")).steps)
        return super().validation_step(batch, batch_idx)

    def predict_step(self, batch, batch_idx):
        STEPS.append((HeartbeatReader(Path("heartbeat-0")).steps, batch_idx % 5))
        return self.layer(batch[0])
"""


@pytest.fixture
def listened(run, tmp_path):
    """Run a module that listens to its own heartbeat; return what it heard at (steps, in a pass) and in validations."""

    def go(**changes):
        name = f"listening_{next(NUMBERS)}"
        (tmp_path / f"{name}.py").write_text(PRELUDE + LISTENING)
        result = run(
            batch_size=BATCH_SIZE,
            model={"_target_": f"{name}.Listening"},
            data={"_target_": f"{name}.Data"},
            optimizer=SGD,
            **changes,
        )
        assert (result.outcome, result.reason) == ("measured", None)
        assert HeartbeatReader(tmp_path / "heartbeat-0").steps == 0, "nothing follows the last step"
        return sys.modules[name].STEPS, sys.modules[name].VALIDATIONS

    return go


@BOTH_LOOPS
def test_the_heartbeat_counts_steps_within_a_pass_and_pauses_for_validation(loop, listened):
    steps, validations = listened(loop=loop, measure=QUICK)
    assert {place for _, place in steps} == set(range(BATCHES)), "several passes"
    assert all(heard == place for heard, place in steps)
    assert validations
    assert set(validations) == {0}


@BOTH_LOOPS
def test_the_heartbeat_pauses_for_each_validation_on_the_way_to_a_target(loop, listened):
    chase = {"target": 2.0, "better": "max", "validate_every_samples": 2 * BATCH_SIZE, "max_samples": 6 * BATCH_SIZE}
    steps, validations = listened(loop=loop, task="time_to_accuracy", measure=QUICK | chase)
    assert set(validations) == {0}
    assert [heard for heard, _ in steps[-6:]] == [0, 1, 0, 1, 0, 0], "a validation every second step, a pass of five"


def test_the_heartbeat_counts_queries(listened):
    steps, _ = listened(task="inference", loop="raw", measure={**QUICK, "scenario": "offline"})
    assert len(steps) > BATCHES
    assert all(heard == place for heard, place in steps)


def test_collectives_time_out_after_the_watchdog(spec):
    assert collective_timeout(spec()) == COLLECTIVE_TIMEOUT
    patient = replace(spec(), silence_seconds=3600.0)
    assert collective_timeout(patient).total_seconds() == 3600.0 + WATCHDOG_MARGIN.total_seconds()
