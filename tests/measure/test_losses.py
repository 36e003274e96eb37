"""Losses kept on the device until the window is over."""

from __future__ import annotations

import math

import torch

from accelsweep.measure.window import COMPACT_EVERY, Losses, first_not_finite


def test_losses_come_back_in_order_across_compactions():
    losses = Losses()
    count = 2 * COMPACT_EVERY + 3
    for step in range(count):
        losses.add(torch.tensor(float(step)))
    assert losses.values() == [float(step) for step in range(count)]


def test_a_step_without_a_loss_stays_a_gap():
    losses = Losses()
    for loss in (torch.tensor([1.5]), None, torch.tensor(2.5)):
        losses.add(loss)
    assert losses.values() == [1.5, None, 2.5]


def test_bfloat16_losses_are_read_as_numbers():
    losses = Losses()
    losses.add(torch.tensor(0.5, dtype=torch.bfloat16))
    assert losses.values() == [0.5]


def test_no_step_reads_a_loss_back():
    """A loss on the meta device cannot be read, so keeping it must not try."""
    losses = Losses()
    for _ in range(COMPACT_EVERY + 1):
        losses.add(torch.empty((), device="meta"))


def test_a_gap_makes_no_step_read_the_others_back():
    losses = Losses()
    for step in range(COMPACT_EVERY + 1):
        losses.add(None if step % 3 == 0 else torch.empty((), device="meta"))


def test_the_first_nan_or_infinity_is_found():
    assert first_not_finite([1.0, None, math.inf, math.nan]) == 2
    assert first_not_finite([1.0, None, 0.0]) is None
