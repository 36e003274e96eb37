"""A teacher and its student: who sees whom, what is refused, and what a pass that ended early leaves behind."""

from __future__ import annotations

import pytest
import torch

from accelsweep.errors import InputError, Unsupported
from accelsweep.features.distillation.distillation import Distillation
from accelsweep.testing.calibration import TimedNetwork


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
