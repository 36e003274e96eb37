"""What loss scaling did, with torch's own scaler on the CPU: the scale, and the steps that it skipped."""

from __future__ import annotations

import pytest
import torch

from accelsweep.execute.loss_scale import LossScale

BIG = 2.0**16


def train(losses, optimizer_class=torch.optim.SGD, **options):
    """Scale, go backward and step once per loss; return the metrics."""
    weight = torch.nn.Parameter(torch.ones(1))
    optimizer = optimizer_class([weight], lr=0.1, **options)
    scaler = torch.amp.GradScaler("cpu", init_scale=BIG)
    watch = LossScale("16-mixed", scaler, optimizer)
    for loss in losses:
        scaler.scale(weight.sum() * loss).backward()
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad()
    return watch.metrics(len(losses))


def test_a_step_that_overflows_is_skipped_and_counted():
    metrics = train([1.0, float("inf"), 1.0, float("inf"), 1.0])
    assert metrics["skipped_steps"].value == 2
    assert metrics["loss_scale"].value == BIG / 4, "halved at each overflow"


def test_without_overflows_nothing_is_skipped():
    metrics = train([1.0, 2.0])
    assert (metrics["skipped_steps"].value, metrics["loss_scale"].value) == (0, BIG)


def test_a_fused_optimiser_skips_where_nobody_counts_and_says_so():
    metrics = train([1.0, float("inf")], torch.optim.SGD, fused=True)
    assert metrics["skipped_steps"].value is None
    assert "optimizer.fused=false" in metrics["skipped_steps"].reason
    assert metrics["loss_scale"].value == BIG / 2


def test_of_several_optimisers_no_skipped_step_is_counted():
    metrics = LossScale("16-mixed", torch.amp.GradScaler("cpu", init_scale=BIG), None).metrics(10)
    assert (metrics["skipped_steps"].value, metrics["loss_scale"].value) == (None, BIG)
    assert "several optimisers" in metrics["skipped_steps"].reason


@pytest.mark.parametrize("scaler", [None, torch.amp.GradScaler("cpu", enabled=False)])
def test_a_precision_that_scales_nothing_has_a_reason(scaler):
    metrics = LossScale("bf16-mixed", scaler, None).metrics(10)
    assert {metric.value for metric in metrics.values()} == {None}
    assert {metric.reason for metric in metrics.values()} == {"precision=bf16-mixed scales no loss; 16-mixed does"}
