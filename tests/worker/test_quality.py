"""The quality phase: its sample budget and its cross-validation."""

from __future__ import annotations

import pytest
import torch
from one_rank import BOTH_LOOPS, DIGITS, MEASURE, MLP

from accelsweep.worker.quality import SampleBudget


def steps_until_enough(budget, samples=16):
    budget.begin()
    while not budget.step_done(samples, torch.tensor(1.0)):
        pass
    return len(budget.curve(None).losses)


def test_the_samples_of_all_ranks_count():
    alone, one_of_two = SampleBudget(100, ranks=1), SampleBudget(100, ranks=2)
    assert (steps_until_enough(alone), alone.seen) == (7, 112)
    assert (steps_until_enough(one_of_two), one_of_two.seen) == (4, 128)


class InFours:
    """Optimiser steps that end after each fourth batch, and with the last one of each epoch of six."""

    def __init__(self):
        self.batches = 0

    @property
    def unfinished(self):
        self.batches += 1
        return self.batches % 6 not in (0, 4)


def test_a_sample_budget_finishes_the_current_optimiser_step():
    assert steps_until_enough(SampleBudget(100, ranks=1)) == 7
    assert steps_until_enough(SampleBudget(100, ranks=1, optimizer_steps=InFours())) == 10


def test_the_first_step_with_a_nan_loss_is_known_afterwards():
    budget = SampleBudget(100, ranks=1)
    for loss in (1.0, float("nan"), float("inf")):
        budget.step_done(16, torch.tensor(loss))
    assert budget.first_bad_step() == 1


@BOTH_LOOPS
def test_cross_validation_in_one_run_gives_the_mean_of_separate_runs_of_its_folds(run, loop):
    measure = {**MEASURE, "quality_samples": 400, "quality_metric": "val_accuracy"}

    def quality(fold):
        result = run(loop=loop, model=MLP, data={**DIGITS, "folds": 3, "fold": fold}, measure=measure)
        return result.metrics["quality"]

    folds, together = [quality(fold).value for fold in range(3)], quality("all")
    assert together.value == pytest.approx(sum(folds) / 3)
    assert together.scope == "mean of 3 folds, each: validation set, after 400 training samples"
    assert len(set(folds)) == 3


@BOTH_LOOPS
def test_the_curve_shows_each_step_of_the_phase_and_its_validation(run, loop):
    measure = {**MEASURE, "quality_samples": 400, "quality_metric": "val_accuracy"}
    result = run(loop=loop, model=MLP, data=DIGITS, measure=measure)
    curve, batch = result.learning, result.effective.batch_size
    assert [point.samples for point in curve.losses] == [batch * (step + 1) for step in range(len(curve.losses))]
    assert curve.losses[-1].samples >= 400 > curve.losses[-2].samples
    assert curve.losses[0].value > curve.losses[-1].value > 0, "it has learned something"
    (validation,) = curve.validations
    assert (validation.samples, validation.value) == (curve.losses[-1].samples, result.metrics["quality"].value)
    assert {point.seconds for point in (*curve.losses, validation)} == {None}


def test_without_a_quality_phase_there_is_no_curve(run):
    assert run(loop="raw", model=MLP, data=DIGITS, measure={**MEASURE, "quality_samples": None}).learning is None
