"""A teacher that answers ahead: the same losses, bit by bit, in the time of the slower of the two."""

from __future__ import annotations

import itertools
import time

import pyarrow.parquet as pq
import pytest
import torch
from one_rank import BOTH_LOOPS, DIGITS, MEASURE, SGD, make_spec, place_of_a_rank

from accelsweep.base.errors import InputError, Unsupported
from accelsweep.core.outcome import Outcome
from accelsweep.rank.loops.make import make_loop
from accelsweep.rank.quality import SampleBudget
from accelsweep.rank.spec import RankResult
from accelsweep.workloads.calibration import TimedNetwork
from accelsweep.workloads.distillation import Distillation

NAMES = itertools.count()
TARGET = "accelsweep.workloads.distillation.Distillation"
CNN = {"_target_": "accelsweep.workloads.models.SmallCNN", "depth": 2}
PAIR = {"_target_": TARGET, "teacher": {**CNN, "width": 8}, "student": {**CNN, "width": 4}}
TIMED = "accelsweep.workloads.calibration.TimedNetwork"
VECTORS = {"_target_": "accelsweep.workloads.noise.RandomVectors", "features": 8, "classes": 4, "samples": 64}
STEPS = 12


@pytest.fixture
def result(tmp_path):
    """Return a rank's result, and the loss of each of its steps."""
    from accelsweep.rank.rank import run_rank

    def go(**changes):
        folder = tmp_path / str(next(NAMES))
        folder.mkdir()
        made = make_spec(folder, data=DIGITS, ceilings=tmp_path / "ceilings.json", **changes)
        with place_of_a_rank(folder):
            run_rank(made)
        found = RankResult.read(made.rank_result(0))
        assert found.outcome is Outcome.measured, found.traceback
        return found, pq.read_table(made.rank_steps(0))["train_loss"].to_pylist()

    return go


@BOTH_LOOPS
@pytest.mark.parametrize("precision", ["32-true", "bf16-mixed", "bf16-true"])
def test_every_loss_is_the_same_bit_by_bit_whether_the_teacher_answers_ahead_or_not(result, loop, precision):
    steps = {"loop": loop, "precision": precision, "measure": {**MEASURE, "max_steps": 20, "quality_samples": None}}
    one_after_the_other, losses = result(model={**PAIR, "overlap": False}, **steps)
    overlapped, ahead = result(model={**PAIR, "overlap": True}, **steps)
    assert losses[:20] == ahead[:20]
    assert len(set(losses[:20])) > 10
    assert one_after_the_other.metrics["parameters"].value == overlapped.metrics["parameters"].value


def pace(folder, loop, overlap, teacher, student):
    """Seconds of a step, whose networks take so long."""
    model = {
        "_target_": TARGET,
        "overlap": overlap,
        "teacher": {"_target_": TIMED, "seconds": teacher},
        "student": {"_target_": TIMED, "seconds": student},
    }
    spec = make_spec(folder, loop=loop, model=model, data=VECTORS, optimizer=SGD)
    with place_of_a_rank(folder):
        budget = SampleBudget(8 * STEPS, 1)
        before = time.perf_counter()
        make_loop(spec).drive(budget)
        return (time.perf_counter() - before) / STEPS


@BOTH_LOOPS
@pytest.mark.parametrize(("teacher", "student"), [(0.03, 0.03), (0.04, 0.02), (0.02, 0.04)])
def test_calibrated_steps_gain_their_sum_over_the_longer_one(tmp_path, loop, teacher, student):
    """The first answer has no step to hide behind, so that n steps gain n (t + s) / (n max(t, s) + min(t, s))."""
    gained = pace(tmp_path, loop, False, teacher, student) / pace(tmp_path, loop, True, teacher, student)
    longer, shorter = max(teacher, student), min(teacher, student)
    assert gained == pytest.approx(STEPS * (teacher + student) / (STEPS * longer + shorter), rel=0.15)


def test_the_students_optimiser_and_strategy_never_see_the_teacher():
    module = Distillation(TimedNetwork(0.0), TimedNetwork(0.0))
    assert sum(each.numel() for each in module.parameters()) == sum(
        each.numel() for each in TimedNetwork(0.0).parameters()
    )


def test_what_cannot_be_distilled_is_refused_with_the_key_to_change():
    pair = {"teacher": TimedNetwork(0.0), "student": TimedNetwork(0.0)}
    with pytest.raises(InputError, match=r"model\.teacher_device=gpu is no device: write cpu, cuda or cuda:1"):
        Distillation(**pair, teacher_device="gpu")
    with pytest.raises(Unsupported, match=r"model\.teacher_device=cuda:99: this run has no such device"):
        Distillation(**pair, teacher_device="cuda:99")
    with pytest.raises(InputError, match=r"model\.temperature=0"):
        Distillation(**pair, temperature=0)
    with pytest.raises(InputError, match=r"model\.teacher gave a str"):
        Distillation("resnet", TimedNetwork(0.0))
    module = Distillation(TimedNetwork(0.0, classes=3), TimedNetwork(0.0))
    batch = torch.zeros(2, 8), torch.zeros(2, dtype=torch.int64)
    module.coming(batch)
    with pytest.raises(InputError, match=r"the teacher answers in \(2, 3\) and the student in \(2, 4\)"):
        module.training_step(batch, 0)
    with pytest.raises(Unsupported, match=r"data\.preprocess=device"):
        module.coming((torch.zeros(2, 8, dtype=torch.uint8), batch[1]))


def test_a_pass_that_is_left_early_leaves_no_answer_for_the_next_one():
    module = Distillation(TimedNetwork(0.0), TimedNetwork(0.0), overlap=True)
    first, second = ((torch.full((2, 8), float(number)), torch.zeros(2, dtype=torch.int64)) for number in (1, 2))
    module.coming(first)
    module.begin_pass()
    module.coming(second)
    alone = Distillation(TimedNetwork(0.0), TimedNetwork(0.0))
    alone.load_state_dict(module.state_dict())
    alone._teacher.network.load_state_dict(module._teacher.network.state_dict())
    alone.coming(second)
    assert torch.equal(module.training_step(second, 0), alone.training_step(second, 0))
