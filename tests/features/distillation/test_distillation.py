"""Distillation: refusals, the state between passes, and a teacher that runs ahead: same losses, in less time."""

from __future__ import annotations

import json
import statistics

import pytest
import torch
from one_rank import BOTH_LOOPS, DIGITS, MEASURE

from accelsweep.errors import InputError, Unsupported
from accelsweep.features.distillation.distillation import Distillation
from accelsweep.results import Outcome
from accelsweep.testing.calibration import TimedNetwork


def test_the_teacher_has_no_parameters_in_the_students_module():
    module = Distillation(TimedNetwork(0.0), TimedNetwork(0.0))
    assert sum(each.numel() for each in module.parameters()) == sum(
        each.numel() for each in TimedNetwork(0.0).parameters()
    )


def test_invalid_arguments_are_refused_with_the_key_to_change():
    pair = {"teacher": TimedNetwork(0.0), "student": TimedNetwork(0.0)}
    with pytest.raises(InputError, match=r"model\.teacher_device=gpu is not a device: use cpu, cuda or cuda:1"):
        Distillation(**pair, teacher_device="gpu")
    with pytest.raises(Unsupported, match=r"model\.teacher_device=cuda:99: this run has no such device"):
        Distillation(**pair, teacher_device="cuda:99")
    with pytest.raises(InputError, match=r"model\.temperature=0"):
        Distillation(**pair, temperature=0)
    with pytest.raises(InputError, match=r"model\.teacher gave a str"):
        Distillation("resnet", TimedNetwork(0.0))
    module = Distillation(TimedNetwork(0.0, classes=3), TimedNetwork(0.0))
    batch = torch.zeros(2, 8), torch.zeros(2, dtype=torch.int64)
    module.submit_to_teacher(batch)
    with pytest.raises(InputError, match=r"the teacher's outputs have shape \(2, 3\), the student's \(2, 4\)"):
        module.training_step(batch, 0)
    with pytest.raises(Unsupported, match=r"data\.preprocess=device"):
        module.submit_to_teacher((torch.zeros(2, 8, dtype=torch.uint8), batch[1]))


def test_a_pass_that_ends_early_leaves_no_outputs_for_the_next_one():
    module = Distillation(TimedNetwork(0.0), TimedNetwork(0.0), overlap=True)
    first, second = ((torch.full((2, 8), float(number)), torch.zeros(2, dtype=torch.int64)) for number in (1, 2))
    module.submit_to_teacher(first)
    module.begin_pass()
    module.submit_to_teacher(second)
    alone = Distillation(TimedNetwork(0.0), TimedNetwork(0.0))
    alone.load_state_dict(module.state_dict())
    alone._teacher.network.load_state_dict(module._teacher.network.state_dict())
    alone.submit_to_teacher(second)
    assert torch.equal(module.training_step(second, 0), alone.training_step(second, 0))


TARGET = "accelsweep.features.distillation.distillation.Distillation"
CNN = {"_target_": "accelsweep.workloads.image_models.SmallCNN", "depth": 2}
PAIR = {"_target_": TARGET, "teacher": {**CNN, "width": 8}, "student": {**CNN, "width": 4}}
TIMED = "accelsweep.testing.calibration.TimedNetwork"
VECTORS = {"_target_": "accelsweep.workloads.datasets.RandomVectors", "features": 8, "classes": 4, "samples": 64}
STEPS = {**MEASURE, "warmup_steps": 3, "min_steps": 13, "max_steps": 13, "min_seconds": 0.0}


@pytest.fixture
def steps(run, tmp_path):
    """Train and return a column of the rank's steps."""

    def train(column, **changes):
        result = run(measure=STEPS, **changes)
        assert result.outcome is Outcome.measured, result.traceback
        return json.loads((tmp_path / "steps-0.json").read_text())[column]

    return train


@pytest.mark.heavy
@BOTH_LOOPS
@pytest.mark.parametrize("precision", ["32-true", "bf16-mixed", "bf16-true"])
def test_losses_are_bitwise_identical_whether_the_teacher_runs_ahead_or_not(steps, loop, precision):
    sequential, overlapped = (
        steps("train_loss", loop=loop, precision=precision, data=DIGITS, model={**PAIR, "overlap": overlap})
        for overlap in (False, True)
    )
    assert sequential == overlapped
    assert len(set(overlapped)) > 10


@pytest.mark.timing
@pytest.mark.parametrize(
    ("loop", "teacher", "student"), [("lightning", 0.03, 0.03), ("raw", 0.04, 0.02), ("raw", 0.02, 0.04)]
)
def test_overlap_speeds_up_calibrated_steps_by_their_sum_over_the_longer_one(steps, loop, teacher, student):
    """The first quartile counts: other work on the machine makes a step longer, never shorter."""
    networks = {"teacher": {"_target_": TIMED, "seconds": teacher}, "student": {"_target_": TIMED, "seconds": student}}

    def pace(overlap):
        model = {"_target_": TARGET, "overlap": overlap, **networks}
        return statistics.quantiles(steps("step_seconds", loop=loop, data=VECTORS, model=model)[3:])[0]

    assert pace(overlap=False) / pace(overlap=True) == pytest.approx(
        (teacher + student) / max(teacher, student), rel=0.15
    )
