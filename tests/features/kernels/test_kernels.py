"""`task=kernels` on one rank, and the checks of its config at planning time."""

from __future__ import annotations

import pytest
from one_rank import MLP

from accelsweep.errors import InputError
from accelsweep.planning.plan import make_plan
from accelsweep.results import Outcome

MODULE = "accelsweep.features.kernels.kernels"


@pytest.mark.parametrize(
    ("model", "flops", "traffic"),
    [
        ({"_target_": f"{MODULE}.Matmul", "size": 64}, 2 * 64**3, 3 * 64 * 64 * 4),
        ({"_target_": f"{MODULE}.Elementwise", "size": 1000, "operation": "add"}, 1000, 3 * 1000 * 4),
        ({"_target_": f"{MODULE}.Elementwise", "size": 1000, "operation": "relu"}, 1000, 2 * 1000 * 4),
        ({"_target_": f"{MODULE}.Copy", "size": 1000}, None, 2 * 1000 * 4),
    ],
)
def test_a_kernel_reports_operations_and_bytes_per_second(run, model, flops, traffic):
    result = run(task="kernels", model=model)
    assert result.outcome is Outcome.measured, result.traceback
    calls = result.metrics["samples_per_second"].value
    assert result.metrics["bytes_per_second"].value == pytest.approx(traffic * calls)
    if flops is None:
        assert result.metrics["flops_per_second"].reason == "this kernel computes nothing"
    else:
        assert result.metrics["flops_per_second"].value == pytest.approx(flops * calls)
    assert result.metrics["window_samples"].value == 8 * result.metrics["window_steps"].value, "8 calls a step"


def test_a_kernel_runs_in_the_configured_precision(run):
    copy = {"_target_": f"{MODULE}.Copy", "size": 1000}
    metrics = run(task="kernels", precision="bf16-mixed", model=copy).metrics
    assert metrics["bytes_per_second"].value == pytest.approx(4000 * metrics["samples_per_second"].value)
    assert metrics["bytes_per_second"].scope == "all ranks, bfloat16"


def test_a_model_that_is_not_a_kernel_is_refused_with_the_kernels_there_are(run):
    result = run(task="kernels", model=MLP)
    assert "is not a kernel" in result.reason
    assert "kernel_matmul" in result.reason


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (["task=kernels", "model=kernel_copy", "loop=raw"], "task=kernels does not train: remove loop"),
        (["task=kernels"], "SmallCNN is a model to train: use model=kernel_matmul"),
        (["model=kernel_copy"], "is a kernel, which has nothing to train: set task=kernels"),
    ],
)
def test_a_model_that_does_not_fit_the_task_is_refused_with_a_remedy(home, overrides, message):
    with pytest.raises(InputError) as refused:
        make_plan(home, ["measure=quick", *overrides])
    assert message in str(refused.value)
    assert not (home / "sweeps").exists()
