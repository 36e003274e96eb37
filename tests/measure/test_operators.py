"""Operators are told apart by the names that torch and its libraries give them in a profile."""

from __future__ import annotations

import pytest
import torch
from torch.profiler import ProfilerActivity, profile

from accelsweep.measure.operators import is_cast, is_matmul


@pytest.mark.parametrize(
    "name",
    [
        *("aten::mm", "aten::addmm", "aten::bmm", "aten::baddbmm", "aten::_scaled_mm", "aten::mkldnn_linear"),
        *("aten::mkldnn_convolution", "aten::cudnn_convolution", "aten::convolution_backward", "aten::thnn_conv2d"),
        *("aten::_slow_conv2d_forward", "mkldnn::_linear_pointwise", "mkldnn::_convolution_pointwise"),
        *("aten::_cudnn_rnn", "aten::mkldnn_rnn_layer", "aten::_scaled_dot_product_flash_attention"),
    ],
)
def test_all_of_torchs_matmul_operators_count(name):
    assert is_matmul(name)


@pytest.mark.parametrize(
    "name",
    [
        *("aten::add_", "aten::relu", "aten::copy_", "aten::native_batch_norm", "aten::_log_softmax", "aten::sum"),
        *("aten::upsample_bilinear2d", "aten::addcmul_", "aten::max_pool2d_with_indices", "Optimizer.step#SGD.step"),
        *("aten::_foreach_addcdiv_", "ProfilerStep*", "autograd::engine::evaluate_function: AddmmBackward0"),
    ],
)
def test_other_operators_do_not_count_as_matmul(name):
    assert not is_matmul(name)


def test_a_conversion_is_seen_as_one_in_a_real_profile():
    values = torch.ones(64)
    with profile(activities=[ProfilerActivity.CPU]) as profiler:
        values.bfloat16()
    names = {event.name for event in profiler.events()}
    assert {name for name in names if is_cast(name)} == {"aten::to", "aten::_to_copy", "aten::copy_"}


@pytest.mark.parametrize("name", ["aten::add", "aten::t", "aten::to_dense", "aten::convolution"])
def test_other_operators_convert_nothing(name):
    assert not is_cast(name)
