"""Shapes and sizes of the networks."""

from __future__ import annotations

import pytest
import torch

from accelsweep.workloads.models import MLP, SmallCNN


@pytest.mark.parametrize("model", [SmallCNN, MLP])
@pytest.mark.parametrize(("image_size", "channels"), [(8, 1), (28, 1), (32, 3), (5, 2)])
def test_any_square_image_gives_one_logit_per_class(model, image_size, channels):
    network = model(image_size=image_size, channels=channels, classes=7)
    assert network(torch.randn(3, channels, image_size, image_size)).shape == (3, 7)


def test_parameter_counts_are_those_of_the_arithmetic():
    cnn = sum(parameter.numel() for parameter in SmallCNN(width=32, depth=3).parameters())
    convolutions = 9 * (1 * 32 + 32 * 64 + 64 * 128)
    assert cnn == convolutions + 2 * (32 + 64 + 128) + 128 * 10 + 10
    mlp = sum(parameter.numel() for parameter in MLP(width=256, depth=2).parameters())
    assert mlp == (64 + 1) * 256 + (256 + 1) * 256 + (256 + 1) * 10
