"""The loss scale and the skipped steps, with torch's own scaler on the CPU."""

from __future__ import annotations

import lightning.pytorch as pl
import pytest
import torch
from lightning.pytorch.plugins import MixedPrecision
from torch.utils.data import DataLoader

from accelsweep.heartbeat import Heartbeat
from accelsweep.worker.loops.trainer_loop import StepCallback
from accelsweep.worker.loops.trainer_replacement import LossScale

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
    return watch.metrics()


def test_a_step_that_overflows_is_skipped_and_counted():
    metrics = train([1.0, float("inf"), 1.0, float("inf"), 1.0])
    assert metrics["skipped_steps"].value == 2
    assert metrics["loss_scale"].value == BIG / 4, "halved at each overflow"


def test_without_overflows_nothing_is_skipped():
    metrics = train([1.0, 2.0])
    assert (metrics["skipped_steps"].value, metrics["loss_scale"].value) == (0, BIG)


def test_skipped_steps_of_a_fused_optimiser_are_unknown_with_a_reason():
    metrics = train([1.0, float("inf")], torch.optim.SGD, fused=True)
    assert metrics["skipped_steps"].value is None
    assert "optimizer.fused=false" in metrics["skipped_steps"].reason
    assert metrics["loss_scale"].value == BIG / 2


def test_skipped_steps_of_several_optimisers_are_unknown():
    metrics = LossScale("16-mixed", torch.amp.GradScaler("cpu", init_scale=BIG), None).metrics()
    assert (metrics["skipped_steps"].value, metrics["loss_scale"].value) == (None, BIG)
    assert "several optimisers" in metrics["skipped_steps"].reason


class Module(pl.LightningModule):
    """One weight; the losses of the batches whose numbers are in `overflows` are infinite."""

    def __init__(self, overflows=()):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(1))
        self.overflows = overflows

    def training_step(self, batch, batch_idx):
        return self.weight.sum() * (float("inf") if batch_idx in self.overflows else 1.0)

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.1)


class EverySecondBatch(Module):
    def __init__(self, overflows=(), *, wrapped=True):
        super().__init__(overflows)
        self.automatic_optimization, self.wrapped = False, wrapped

    def training_step(self, batch, batch_idx):
        self.manual_backward(super().training_step(batch, batch_idx))
        if batch_idx % 2:
            optimizer = self.optimizers(use_pl_optimizer=self.wrapped)
            optimizer.step()
            optimizer.zero_grad()


class ManySteps:
    def begin(self):
        pass

    def step_done(self, samples, loss):
        return False


def trained(module, **settings):
    """Train two epochs of four batches with Lightning; return the metrics."""
    callback = StepCallback(1, Heartbeat())
    callback.listener = ManySteps()
    precision = MixedPrecision("16-mixed", "cpu", torch.amp.GradScaler("cpu", init_scale=BIG))
    none = dict.fromkeys(("logger", "enable_checkpointing", "enable_progress_bar", "enable_model_summary"), False)
    trainer = pl.Trainer(accelerator="cpu", max_epochs=2, plugins=[precision], callbacks=[callback], **none, **settings)
    trainer.fit(module, DataLoader(torch.ones(4, 1)))
    return callback.loss_scale.metrics()


@pytest.mark.parametrize(("overflows", "skipped"), [((), 0), ((3,), 2)])
def test_an_early_step_at_the_end_of_an_epoch_is_not_counted_as_skipped(overflows, skipped):
    """Of four batches the first three make a step, and the fourth makes one alone."""
    assert trained(Module(overflows), accumulate_grad_batches=3)["skipped_steps"].value == skipped


@pytest.mark.parametrize(("overflows", "skipped"), [((), 0), ((0,), 2)])
def test_batches_without_a_manual_step_are_not_counted_as_skipped(overflows, skipped):
    assert trained(EverySecondBatch(overflows))["skipped_steps"].value == skipped


def test_steps_that_bypass_the_scaler_have_a_reason():
    skipped = trained(EverySecondBatch(wrapped=False))["skipped_steps"]
    assert (skipped.value, "step self.optimizers()" in skipped.reason) == (None, True)


@pytest.mark.parametrize("scaler", [None, torch.amp.GradScaler("cpu", enabled=False)])
def test_a_precision_that_scales_nothing_has_a_reason(scaler):
    metrics = LossScale("bf16-mixed", scaler, None).metrics()
    assert {metric.value for metric in metrics.values()} == {None}
    assert {metric.reason for metric in metrics.values()} == {
        "precision=bf16-mixed does not scale the loss; 16-mixed does"
    }
