"""The traits of a forward pass: what is counted, of which kind, and what is not known."""

import pytest
import torch

from accelsweep.measure.flops import forward_traits
from accelsweep.results import Traits


def traits_of(model: torch.nn.Module, *shape: int) -> Traits:
    """Return the traits of a pass over one batch of `shape` on the meta device."""
    meta = model.to("meta")
    return forward_traits(lambda: meta(torch.empty(shape, device="meta")), meta, shape[0])


def test_convolutions_are_told_apart_by_their_groups():
    """A depthwise convolution reaches little of a device's peak, so its operations are counted apart."""
    both = torch.nn.Sequential(torch.nn.Conv2d(8, 8, 3, padding=1), torch.nn.Conv2d(8, 8, 3, padding=1, groups=8))
    found = traits_of(both, 4, 8, 10, 10)
    assert found.flops_convolution == 2 * 8 * 8 * 9 * 100
    assert found.flops_grouped == 2 * 8 * 9 * 100
    assert found.activations == 2 * 8 * 100, "per sample, whatever the batch"


def test_views_write_nothing_and_points_are_no_activations():
    """Numbers that element-wise operations write are counted apart from those of products."""
    model = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(12, 5), torch.nn.ReLU())
    found = traits_of(model, 2, 3, 4)
    assert (found.flops_product, found.activations, found.others) == (2 * 12 * 5, 5, 5)
    assert found.kernels == 2


class Attends(torch.nn.Module):
    """Fused attention over 16 tokens of 8 numbers."""

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        """Return what the tokens attend to."""
        return torch.nn.functional.scaled_dot_product_attention(tokens, tokens, tokens)


def test_fused_attention_writes_its_result_only():
    """On a GPU the matrix of attention is never written, although the meta device takes the call apart."""
    found = traits_of(Attends(), 2, 1, 16, 8)
    assert found.flops_attention == 2 * 2 * 16 * 16 * 8
    assert (found.activations, found.others, found.kernels) == (16 * 8, 0, 1)


class Transforms(torch.nn.Module):
    """An operation of which nobody told the counter how much work it is."""

    def forward(self, numbers: torch.Tensor) -> torch.Tensor:
        """Return the spectrum, with two linear layers' worth of nothing around it."""
        return torch.fft.fft(numbers).real + 1


def test_operations_of_unknown_cost_are_named():
    """A model that mostly does what cannot be counted must not be projected: it says so itself."""
    found = traits_of(Transforms(), 2, 32)
    assert found.unknown_share == pytest.approx(0.5)
    assert found.unknown_names[0].startswith("_fft")
