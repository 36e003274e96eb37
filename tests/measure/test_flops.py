"""Counted operations against counts by hand; a multiplication and an addition are two."""

import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

from accelsweep.measure.flops import NotCounted, training_flops

SAMPLES = 4


def count(make, *shape, forward=None):
    with torch.device("meta"):
        module, inputs = make(), torch.empty(SAMPLES, *shape)

    def step():
        found = forward(module, inputs) if forward else module(inputs)
        return (found[0] if isinstance(found, tuple) else found).mean()

    return training_flops(step)


def test_a_linear_layer_counts_its_product_and_the_gradient_of_its_weight():
    product = 2 * SAMPLES * 10 * 20
    assert count(lambda: nn.Linear(10, 20), 10) == 2 * product


def test_a_second_layer_also_counts_the_gradient_of_its_input():
    first, second = 2 * SAMPLES * 10 * 20, 2 * SAMPLES * 20 * 5
    assert count(lambda: nn.Sequential(nn.Linear(10, 20), nn.ReLU(), nn.Linear(20, 5)), 10) == 2 * first + 3 * second


def test_a_convolution_counts_every_output_pixel():
    product = 2 * SAMPLES * (6 * 6) * 8 * (3 * 3 * 3)
    assert count(lambda: nn.Conv2d(3, 8, 3), 3, 8, 8) == 2 * product


def test_an_lstm_is_counted_although_a_cpu_computes_it_as_one_operation():
    """Per time step four gates from input and state; the first state is zero and, like the input, needs no gradient."""
    time, inputs, hidden = 7, 10, 20
    into, between = 2 * SAMPLES * inputs * 4 * hidden, 2 * SAMPLES * hidden * 4 * hidden
    forward = time * (into + between)
    backward = time * into + time * between + (time - 1) * between
    assert count(lambda: nn.LSTM(inputs, hidden, batch_first=True), time, inputs) == forward + backward


def test_a_gru_has_three_gates():
    time, inputs, hidden = 7, 10, 20
    into, between = 2 * SAMPLES * inputs * 3 * hidden, 2 * SAMPLES * hidden * 3 * hidden
    forward = time * (into + between)
    backward = time * into + time * between + (time - 1) * between
    assert count(lambda: nn.GRU(inputs, hidden, batch_first=True), time, inputs) == forward + backward


class Attention(nn.Module):
    """Queries, keys and values are parameters, so that all of them need a gradient."""

    def __init__(self):
        super().__init__()
        self.parts = nn.Parameter(torch.empty(3, SAMPLES, 2, 16, 8))

    def forward(self, _inputs):
        return nn.functional.scaled_dot_product_attention(*self.parts)


def test_attention_is_two_products_forward_and_four_backward():
    product = 2 * SAMPLES * 2 * 16 * 16 * 8
    assert count(Attention, 1) == 6 * product


def test_what_checkpointing_computes_again_is_not_the_models_work():
    def make():
        return nn.Sequential(nn.Linear(10, 20), nn.ReLU(), nn.Linear(20, 5))

    plain = count(make, 10)
    for reentrant in (False, True):
        again = count(
            make,
            10,
            forward=lambda module, inputs, way=reentrant: checkpoint(
                module, inputs.requires_grad_(way), use_reentrant=way
            ),
        )
        extra = 2 * SAMPLES * 10 * 20 if reentrant else 0  # the input's gradient, which reentrant checkpoints need
        assert again == plain + extra


def test_a_step_without_a_loss_is_not_counted():
    with pytest.raises(NotCounted, match="no loss"):
        training_flops(lambda: None)
    with pytest.raises(NotCounted, match="gradient"):
        training_flops(lambda: torch.zeros(()))
