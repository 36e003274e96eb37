"""A teacher that answers ahead: the same losses, bit by bit, in the time of the slower of the two."""

from __future__ import annotations

import statistics

import pyarrow.parquet as pq
import pytest
from one_rank import BOTH_LOOPS, DIGITS, MEASURE

from accelsweep.records.run_record import Outcome

TARGET = "accelsweep.features.distillation.distillation.Distillation"
CNN = {"_target_": "accelsweep.workloads.image_models.SmallCNN", "depth": 2}
PAIR = {"_target_": TARGET, "teacher": {**CNN, "width": 8}, "student": {**CNN, "width": 4}}
TIMED = "accelsweep.testing.calibration.TimedNetwork"
VECTORS = {"_target_": "accelsweep.workloads.datasets.RandomVectors", "features": 8, "classes": 4, "samples": 64}
STEPS = {**MEASURE, "warmup_steps": 3, "min_steps": 13, "max_steps": 13, "min_seconds": 0.0}


@pytest.fixture
def steps(run, tmp_path):
    """Return the column of a rank's steps."""

    def go(column, **changes):
        result = run(measure=STEPS, **changes)
        assert result.outcome is Outcome.measured, result.traceback
        return pq.read_table(tmp_path / "rank-0.steps.parquet")[column].to_pylist()

    return go


@pytest.mark.heavy
@BOTH_LOOPS
@pytest.mark.parametrize("precision", ["32-true", "bf16-mixed", "bf16-true"])
def test_every_loss_is_the_same_bit_by_bit_whether_the_teacher_answers_ahead_or_not(steps, loop, precision):
    one_after_the_other, overlapped = (
        steps("train_loss", loop=loop, precision=precision, data=DIGITS, model={**PAIR, "overlap": overlap})
        for overlap in (False, True)
    )
    assert one_after_the_other == overlapped
    assert len(set(overlapped)) > 10


@pytest.mark.timing
@pytest.mark.parametrize(
    ("loop", "teacher", "student"), [("lightning", 0.03, 0.03), ("raw", 0.04, 0.02), ("raw", 0.02, 0.04)]
)
def test_calibrated_steps_gain_their_sum_over_the_longer_one(steps, loop, teacher, student):
    """The fastest quarter of the steps is looked at: the machine's own work makes a wait longer, never shorter."""
    networks = {"teacher": {"_target_": TIMED, "seconds": teacher}, "student": {"_target_": TIMED, "seconds": student}}

    def pace(overlap):
        model = {"_target_": TARGET, "overlap": overlap, **networks}
        return statistics.quantiles(steps("step_seconds", loop=loop, data=VECTORS, model=model)[3:])[0]

    assert pace(overlap=False) / pace(overlap=True) == pytest.approx(
        (teacher + student) / max(teacher, student), rel=0.15
    )
