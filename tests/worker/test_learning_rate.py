"""The effective learning rate: scaled to the global batch and warmed up step by step, in both loops."""

from __future__ import annotations

import itertools

import pytest
from one_rank import BOTH_LOOPS, DIGITS, MLP, SGD, run_ranks
from own_models import PRELUDE

from accelsweep.results import Outcome

MEASURE = {"warmup_steps": 2, "min_steps": 6, "min_seconds": 0.0, "max_steps": 6, "quality_samples": None}
STEPS = 8
NUMBERS = itertools.count()
SCALED = {**SGD, "lr": 0.1, "lr_scaling": "linear", "base_batch_size": 4}


def learning_rate(result):
    assert (result.outcome, result.reason) == (Outcome.measured, None)
    return result.metrics["learning_rate"].value


@BOTH_LOOPS
def test_the_learning_rate_is_scaled_to_the_batch(run, loop):
    assert learning_rate(run(loop=loop, measure=MEASURE, optimizer=SCALED)) == pytest.approx(0.2)


@BOTH_LOOPS
def test_the_learning_rate_warms_up_step_by_step(run, loop):
    warming = {**SCALED, "warmup_steps": 100}
    expected = 0.2 * (STEPS + 1) / 100
    assert learning_rate(run(loop=loop, measure=MEASURE, optimizer=warming)) == pytest.approx(expected)


def test_accumulation_counts_for_the_scaling_and_warm_up_counts_optimiser_steps(run):
    trainer = {"strategy": "auto", "accumulate_grad_batches": 2}
    warming = {**SCALED, "warmup_steps": 100}
    expected = 0.4 * (STEPS / 2 + 1) / 100
    assert learning_rate(run(trainer=trainer, measure=MEASURE, optimizer=warming)) == pytest.approx(expected)


OWN = """
class Own(Module):
    {changes}
class OwnData(pl.LightningDataModule):
    def __init__(self, batch_size, rows):
        super().__init__()
        self.batch_size, self.rows = batch_size, rows
    def train_dataloader(self):
        return DataLoader(TensorDataset(torch.randn(self.rows, 4), torch.randint(2, (self.rows,))), self.batch_size)
"""
IN_TWOS = """
    def __init__(self):
        super().__init__()
        self.automatic_optimization = False
    def training_step(self, batch, batch_idx):
        self.manual_backward(cross_entropy(self.layer(batch[0]), batch[1]))
        if batch_idx % 2:
            self.optimizers().step(); self.optimizers().zero_grad()
"""
BY_EPOCH = """def configure_callbacks(self):
        return [pl.callbacks.GradientAccumulationScheduler({0: 2, 1: 4})]"""
ALWAYS_FOUR = BY_EPOCH.replace("0: 2, 1: 4", "0: 4")


@pytest.fixture
def scaled(run, tmp_path):
    """Train with a rate of 0.02 that is meant for 64 samples, in batches of 32 from so many rows."""

    def go(rows, accumulate=None, changes="pass"):
        name = f"own_scaled_{next(NUMBERS)}"
        (tmp_path / f"{name}.py").write_text(PRELUDE + OWN.replace("{changes}", changes))
        return run(
            batch_size=32,
            model={"_target_": f"{name}.Own"},
            data={"_target_": f"{name}.OwnData", "rows": rows},
            optimizer={**SGD, "lr": 0.02, "lr_scaling": "linear", "base_batch_size": 64},
            trainer={"strategy": "auto"} | ({} if accumulate is None else {"accumulate_grad_batches": accumulate}),
            measure={**MEASURE, "min_steps": 24, "max_steps": 24},
        )

    return go


@pytest.mark.parametrize(
    ("rows", "accumulate", "changes", "expected"),
    [
        (64, 4, "pass", 0.02),
        (96, 4, "pass", 0.03),
        (256, 4, "pass", 0.04),
        (64, None, "pass", 0.01),
        (32 * 81, 4, "pass", 0.04),
        (256, None, ALWAYS_FOUR, 0.04),
    ],
)
def test_the_rate_is_scaled_to_the_batch_that_optimiser_steps_hold(scaled, rows, accumulate, changes, expected):
    """64 rows are 2 batches an epoch, at whose end Lightning steps: it holds 64 samples, not 4 batches of 32."""
    assert learning_rate(scaled(rows, accumulate, changes)) == pytest.approx(expected)


@pytest.mark.parametrize(
    ("rows", "accumulate", "changes", "reason"),
    [
        (192, 4, "pass", "an epoch of 6 batches consists of optimiser steps of 4 batches and one of 2"),
        (256, None, BY_EPOCH, "GradientAccumulationScheduler accumulates 2, 4 batches, depending on the epoch"),
        (256, None, IN_TWOS, "scaled the learning rate for 32 samples per optimiser step, but those of Own used 64"),
    ],
)
def test_scaling_without_one_global_batch_is_refused(scaled, rows, accumulate, changes, reason):
    result = scaled(rows, accumulate, changes)
    assert result.outcome is Outcome.unsupported
    assert "optimizer.lr_scaling=linear" in result.reason
    assert reason in result.reason


@BOTH_LOOPS
@pytest.mark.parametrize("variant", ["fused", "foreach"])
def test_fused_and_foreach_train_in_both_loops(run, loop, variant):
    settings = {"_target_": "torch.optim.AdamW", "_partial_": True, "lr": 0.01, variant: True}
    result = run(loop=loop, model=MLP, data=DIGITS, measure=MEASURE, optimizer=settings)
    assert learning_rate(result) == pytest.approx(0.01)
    assert result.effective.optimizer == "AdamW"


def test_fused_and_foreach_together_are_refused(run):
    result = run(measure=MEASURE, optimizer={**SGD, "fused": True, "foreach": True})
    assert result.outcome is Outcome.unsupported
    assert "are mutually exclusive" in result.reason


@pytest.mark.real
@BOTH_LOOPS
def test_ranks_count_for_the_scaling(spec, tmp_path, loop):
    results = run_ranks(spec(loop=loop, devices=2, measure=MEASURE, optimizer=SCALED), tmp_path)
    assert learning_rate(results[0]) == pytest.approx(0.4)
