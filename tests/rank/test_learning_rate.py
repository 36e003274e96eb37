"""The learning rate that was really in force: scaled to the global batch, warmed up step by step, in both loops."""

from __future__ import annotations

import pytest
from one_rank import BOTH_LOOPS, DIGITS, MLP, SGD, run_ranks

from accelsweep.core.recorded.outcome import Outcome

MEASURE = {"warmup_steps": 2, "min_steps": 6, "min_seconds": 0.0, "max_steps": 6, "quality_samples": None}
STEPS = 8
SCALED = {**SGD, "lr": 0.1, "lr_scaling": "linear", "base_batch_size": 4}


def learning_rate(result):
    assert (result.outcome, result.reason) == (Outcome.measured, None)
    return result.metrics["learning_rate"].value


@BOTH_LOOPS
def test_the_rate_is_scaled_to_the_batch(run, loop):
    assert learning_rate(run(loop=loop, measure=MEASURE, optimizer=SCALED)) == pytest.approx(0.2)


@BOTH_LOOPS
def test_the_rate_grows_after_every_step(run, loop):
    warming = {**SCALED, "warmup_steps": 100}
    expected = 0.2 * (STEPS + 1) / 100
    assert learning_rate(run(loop=loop, measure=MEASURE, optimizer=warming)) == pytest.approx(expected)


def test_accumulated_steps_count_for_the_scaling_and_warm_up_counts_optimiser_steps(run):
    trainer = {"strategy": "auto", "accumulate_grad_batches": 2}
    warming = {**SCALED, "warmup_steps": 100}
    expected = 0.4 * (STEPS / 2 + 1) / 100
    assert learning_rate(run(trainer=trainer, measure=MEASURE, optimizer=warming)) == pytest.approx(expected)


@BOTH_LOOPS
@pytest.mark.parametrize("variant", ["fused", "foreach"])
def test_fused_and_foreach_train_in_both_loops(run, loop, variant):
    settings = {"_target_": "torch.optim.AdamW", "_partial_": True, "lr": 0.01, variant: True}
    result = run(loop=loop, model=MLP, data=DIGITS, measure=MEASURE, optimizer=settings)
    assert learning_rate(result) == pytest.approx(0.01)
    assert result.effective.optimizer == "AdamW"


def test_both_at_once_are_no_cell(run):
    result = run(measure=MEASURE, optimizer={**SGD, "fused": True, "foreach": True})
    assert result.outcome is Outcome.unsupported
    assert "exclude each other" in result.reason


@pytest.mark.real
@BOTH_LOOPS
def test_ranks_count_for_the_scaling(spec, tmp_path, loop):
    results = run_ranks(spec(loop=loop, devices=2, measure=MEASURE, optimizer=SCALED), tmp_path)
    assert learning_rate(results[0]) == pytest.approx(0.4)
