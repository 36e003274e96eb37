"""The workloads of known truth keep to their schedules."""

from __future__ import annotations

import itertools
import time

import pytest
import torch

from accelsweep.testing.calibration import TimedData, TimedStep, spin


def test_spinning_takes_as_long_as_it_says(monkeypatch):
    looks = itertools.count()
    monkeypatch.setattr(time, "perf_counter", lambda: next(looks) * 0.001)
    spin(0.02)
    assert next(looks) * 0.001 == pytest.approx(0.02, abs=0.002)


def test_the_schedule_is_what_the_arguments_say(monkeypatch):
    monkeypatch.setenv("RANK", "1")
    assert TimedStep(0.5).seconds_of(9) == 0.5
    assert TimedStep(0.5, drift_per_step=0.1).seconds_of(10) == pytest.approx(1.0)
    bimodal = TimedStep(0.5, slow_every=2, slow_factor=3.0)
    assert [bimodal.seconds_of(step) for step in range(3)] == [1.5, 0.5, 1.5]
    slow_start = TimedStep(0.5, slow_warmup_steps=2, slow_factor=4.0)
    assert [slow_start.seconds_of(step) for step in range(3)] == [2.0, 2.0, 0.5]
    assert TimedStep(0.5, stalled_rank=1, stall_seconds=0.25).seconds_of(0) == 0.75
    assert TimedStep(0.5, stalled_rank=0, stall_seconds=0.25).seconds_of(0) == 0.5


def test_data_waits_and_ends_as_told():
    before = time.perf_counter()
    batches = list(TimedData(batch_size=4, wait_seconds=0.01, batches=3).train_dataloader())
    assert time.perf_counter() - before >= 0.03
    assert [batch.shape for batch in batches] == [torch.Size([4, 1])] * 3
