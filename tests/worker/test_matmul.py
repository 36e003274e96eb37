"""The share of a step's time in matrix products, where it is known beforehand."""

from __future__ import annotations

import pytest
from one_rank import BOTH_LOOPS, MEASURE

from accelsweep.worker.model_probes import MATMUL_OPERATORS

PROFILED = {**MEASURE, "matmul_steps": 3, "warmup_steps": 2, "min_steps": 2, "max_steps": 2}
VECTORS = {"_target_": "accelsweep.workloads.datasets.RandomVectors", "features": 512, "classes": 512, "samples": 512}
WIDE = {"_target_": "accelsweep.workloads.image_models.MLP", "features": 512, "width": 1024, "classes": 512}


@BOTH_LOOPS
def test_a_wide_perceptron_is_mostly_matrix_products(run, loop):
    share = run(loop=loop, model=WIDE, data=VECTORS, batch_size=128, measure=PROFILED).metrics["matmul_time_share"]
    assert 0.5 < share.value < 1.0
    assert share.provenance == "torch.profiler"


def test_a_step_that_waits_holds_none(run):
    assert run(measure=PROFILED).metrics["matmul_time_share"].value < 0.01


def test_a_run_that_is_not_asked_for_the_share_has_none(run):
    assert "matmul_time_share" not in run().metrics


@pytest.mark.parametrize(
    "name",
    [
        *("aten::mm", "aten::addmm", "aten::bmm", "aten::baddbmm", "aten::_scaled_mm", "aten::mkldnn_linear"),
        *("aten::mkldnn_convolution", "aten::cudnn_convolution", "aten::convolution_backward", "aten::thnn_conv2d"),
        *("aten::_slow_conv2d_forward", "mkldnn::_linear_pointwise", "mkldnn::_convolution_pointwise"),
        *("aten::_cudnn_rnn", "aten::mkldnn_rnn_layer", "aten::_scaled_dot_product_flash_attention"),
    ],
)
def test_products_by_any_name_of_torchs_count(name):
    assert MATMUL_OPERATORS.fullmatch(name)


@pytest.mark.parametrize(
    "name",
    [
        *("aten::add_", "aten::relu", "aten::copy_", "aten::native_batch_norm", "aten::_log_softmax", "aten::sum"),
        *("aten::upsample_bilinear2d", "aten::addcmul_", "aten::max_pool2d_with_indices", "Optimizer.step#SGD.step"),
        *("aten::_foreach_addcdiv_", "ProfilerStep*", "autograd::engine::evaluate_function: AddmmBackward0"),
    ],
)
def test_what_multiplies_no_matrices_does_not(name):
    assert not MATMUL_OPERATORS.fullmatch(name)
