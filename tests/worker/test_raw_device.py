"""A raw loop takes no argument of Lightning's Trainer that it would silently leave undone."""

from __future__ import annotations

import pytest
import torch

from accelsweep.errors import MissingDevice, Unsupported
from accelsweep.worker.loops import make_loop
from accelsweep.worker.loops.trainerless import refuse_trainer_arguments


@pytest.mark.parametrize(
    ("trainer", "named"),
    [
        ({"strategy": "fsdp"}, "trainer.strategy=fsdp"),
        ({"strategy": "ddp_find_unused_parameters_true"}, "trainer.strategy=ddp_find_unused_parameters_true"),
        ({"use_distributed_sampler": False}, "trainer.use_distributed_sampler=False"),
        ({"accumulate_grad_batches": 4}, "trainer.accumulate_grad_batches=4"),
        ({"strategy": "auto", "deterministic": True, "benchmark": True}, "trainer.benchmark=True, trainer.determinis"),
    ],
)
def test_what_a_bare_loop_would_not_do_is_refused(spec, trainer, named) -> None:
    """`strategy=fsdp` would otherwise be measured as DDP."""
    with pytest.raises(Unsupported, match=f"^loop=raw has no {named}") as refused:
        refuse_trainer_arguments(spec(trainer=trainer), "loop=raw")
    assert "use loop=lightning, or leave it out" in str(refused.value)


@pytest.mark.parametrize(
    "trainer",
    [
        {},
        {"strategy": "auto", "accumulate_grad_batches": 1, "deterministic": False, "benchmark": None},
        {"strategy": "ddp", "use_distributed_sampler": True, "log_every_n_steps": 10},
        {"strategy": None, "accumulate_grad_batches": None},
    ],
)
def test_what_it_does_anyway_may_be_said(spec, trainer) -> None:
    refuse_trainer_arguments(spec(trainer=trainer), "loop=raw")


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU here")
@pytest.mark.parametrize("loop", ["raw", "lightning"])
def test_a_gpu_that_torch_does_not_find_is_no_answer_but_a_fault_of_the_machine(spec, loop) -> None:
    with pytest.raises(MissingDevice, match=r"accelerator=cuda: torch .* finds no CUDA device here: it was built"):
        make_loop(spec(accelerator="cuda", loop=loop))
