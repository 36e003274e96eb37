"""Breakdowns, utilisation and matmul shares of steps whose costs are known."""

from __future__ import annotations

import math

import pytest
import torch
from one_rank import BOTH_LOOPS, DIGITS, MEASURE, MLP, TIMED, TIMED_DATA, run_ranks

from accelsweep.measure.breakdown import probe_steps
from accelsweep.measure.flops import Ceiling, cached_ceiling
from accelsweep.results import PARTS, Effective, Outcome
from accelsweep.worker.model_probes import flops_metrics

pytestmark = pytest.mark.heavy

PROBED = {**MEASURE, "min_seconds": 0.5, "max_steps": 400, "probe_steps": 20}
TOLERANCE = 0.05
"""Of a share; the loops' own time and the timer's are part of it."""


def share(result, part):
    return result.metrics[f"{part}_share"].value


@BOTH_LOOPS
def test_a_known_data_wait_is_measured_as_its_share_and_is_the_bottleneck(run, ticking, loop):
    """6 ms of waiting for data and 2 ms of step: three quarters."""
    result = run(loop=loop, measure=PROBED, data={**TIMED_DATA, "wait_seconds": 0.006})
    assert share(result, "data_wait") == pytest.approx(0.75, abs=TOLERANCE)
    assert share(result, "forward") == pytest.approx(0.25, abs=TOLERANCE)
    assert result.breakdown.verdict == "input-bound"
    assert result.breakdown.step_seconds >= 0.008
    assert sum(result.breakdown.shares.values()) == pytest.approx(1.0)


@BOTH_LOOPS
def test_a_step_that_only_computes_is_compute_bound(run, ticking, loop):
    result = run(loop=loop, measure=PROBED, model={**TIMED, "seconds": 0.008})
    assert share(result, "forward") >= 0.8
    assert share(result, "communication") == 0.0
    assert result.breakdown.verdict == "compute-bound"


@BOTH_LOOPS
def test_a_slow_optimiser_shows_in_optimizer_share_only(run, ticking, tmp_path, loop):
    """6 ms in the optimiser's step, whose closure holds the other phases in Lightning's loop, and 2 ms of forward."""
    (tmp_path / f"slow_{loop}.py").write_text(
        "import torch\n"
        "from accelsweep.testing.calibration import spin\n"
        "class Slow(torch.optim.SGD):\n"
        "    def step(self, closure=None):\n"
        "        loss = super().step(closure)\n"
        "        spin(0.006)\n"
        "        return loss\n"
    )
    optimizer = {"_target_": f"slow_{loop}.Slow", "_partial_": True, "lr": 0.1}
    result = run(loop=loop, measure=PROBED, optimizer=optimizer)
    assert result.outcome is Outcome.measured, result.traceback
    assert share(result, "optimizer") == pytest.approx(0.75, abs=TOLERANCE)
    assert share(result, "forward") == pytest.approx(0.25, abs=TOLERANCE)


BY_HAND = """
import lightning.pytorch as pl, torch
from accelsweep.testing.calibration import spin

class Slow(torch.autograd.Function):
    '''2 ms forward, 6 ms backward.'''
    @staticmethod
    def forward(context, value):
        spin(0.002)
        return value.clone()
    @staticmethod
    def backward(context, gradient):
        spin(0.006)
        return gradient

class Descent(torch.optim.SGD):
    def step(self, closure=None):
        loss = super().step(closure)
        spin(0.004)
        return loss

class Module(pl.LightningModule):
    def __init__(self):
        super().__init__()
        self.automatic_optimization = False
        self.weight = torch.nn.Parameter(torch.ones(1))
        self.other = torch.nn.Parameter(torch.ones(1))

    def configure_optimizers(self):
        return [Descent([self.weight], lr=0.1), Descent([self.other], lr=0.1)]

    def training_step(self, batch, number):
        first, second = self.optimizers(use_pl_optimizer=PL)
        BODY
"""

TWO_TURNS = """for optimizer, weight in ((first, self.weight), (second, self.other)):
            loss = Slow.apply(weight).sum()
            optimizer.zero_grad()
            TAKE
            optimizer.step()"""

CLOSURE = """def closure():
            loss = Slow.apply(self.weight).sum()
            self.manual_backward(loss)
            return loss
        first.step(closure)"""

TAKEN = """(gradient,) = torch.autograd.grad(Slow.apply(self.weight).sum(), self.weight)
        with torch.no_grad():
            self.weight -= 0.1 * gradient"""

GUESSED = """with torch.no_grad():
            self.weight += 0.01 * torch.randn(1)
            spin(0.002)"""


@pytest.mark.parametrize(
    ("body", "lightnings", "parts"),
    [
        (TWO_TURNS.replace("TAKE", "self.manual_backward(loss)"), True, (2, 6, 4)),
        (TWO_TURNS.replace("TAKE", "loss.backward()"), True, (2, 6, 4)),
        (TWO_TURNS.replace("TAKE", "loss.backward()"), False, (2, 6, 4)),
        (CLOSURE, True, (2, 6, 4)),
        (CLOSURE, False, (2, 6, 4)),
        (TAKEN, True, (2, 6, None)),
        (GUESSED, True, (2, None, None)),
    ],
    ids=[
        "manual_backward",
        "loss.backward",
        "torch's own optimisers",
        "a closure",
        "a closure of torch's own",
        "a gradient that is taken, and an update by hand",
        "no gradient at all",
    ],
)
def test_the_parts_of_a_manually_optimised_step_have_a_share_or_a_reason(
    run, ticking, tmp_path, body, lightnings, parts
):
    name = f"by_hand_{abs(hash((body, lightnings)))}"
    (tmp_path / f"{name}.py").write_text(BY_HAND.replace("PL", str(lightnings)).replace("BODY", body))
    result = run(model={"_target_": f"{name}.Module"}, measure=PROBED)
    assert result.outcome is Outcome.measured, result.traceback
    whole = sum(filter(None, parts))
    for part, spent in zip(("forward", "backward", "optimizer"), parts, strict=True):
        if spent is None:
            assert share(result, part) is None
            assert part not in result.breakdown.shares
            assert "these steps: any" in result.metrics[f"{part}_share"].reason
        else:
            assert share(result, part) == pytest.approx(spent / whole, abs=TOLERANCE)
    assert sum(result.breakdown.shares.values()) == pytest.approx(1.0)
    assert result.breakdown.verdict == "compute-bound"


@BOTH_LOOPS
def test_a_real_model_has_a_share_for_every_part_and_an_mfu(run, loop):
    result = run(loop=loop, measure=PROBED, model=MLP, data=DIGITS)
    assert all(share(result, part) > 0 for part in PARTS if part != "communication")
    # A batch goes through 64 x 16, 16 x 16 and 16 x 10, twice and three times (the first needs no input gradient).
    products = [64 * 16, 16 * 16, 16 * 10]
    assert result.metrics["model_flops_per_sample"].value == 2 * (3 * sum(products) - products[0])
    assert result.metrics["parameters"].value == sum(products) + 16 + 16 + 10, "weights and biases"
    assert 0 < result.metrics["mfu"].value < 1
    assert "datasheet" in result.metrics["mfu_of_datasheet"].reason


@BOTH_LOOPS
def test_the_probe_pass_does_not_change_the_window(run, loop):
    """Same steps, same losses to the last bit, with and without it."""

    def losses(measure):
        result = run(loop=loop, measure=measure, model=MLP, data=DIGITS)
        return result.metrics["final_train_loss"].value, result.metrics["window_steps"].value

    fixed = {**MEASURE, "min_steps": 20, "max_steps": 20}
    assert losses(fixed) == losses({**fixed, "probe_steps": 5})


def test_a_pass_over_long_steps_is_short_and_has_whole_optimiser_steps():
    assert probe_steps(20, seconds=5.0, step_seconds=0.01, multiple_of=1) == 20
    assert probe_steps(20, seconds=5.0, step_seconds=0.5, multiple_of=1) == 10
    assert probe_steps(20, seconds=5.0, step_seconds=60.0, multiple_of=1) == 3
    assert probe_steps(20, seconds=5.0, step_seconds=60.0, multiple_of=4) == 4


def test_a_disabled_probe_pass_has_a_reason(run):
    result = run()
    assert result.breakdown is None
    assert "measure.probe_steps" in result.metrics["data_wait_share"].reason


@BOTH_LOOPS
def test_a_fake_loader_removes_the_cost_of_the_input_pipeline(run, ticking, loop):
    measure = {**PROBED, "fake_loader": True}
    result = run(loop=loop, measure=measure, data={**TIMED_DATA, "wait_seconds": 0.006})
    assert result.outcome is Outcome.measured, result.traceback
    assert share(result, "data_wait") < 0.2
    assert result.breakdown.verdict == "compute-bound"
    assert result.metrics["step_seconds"].value < 0.006


def test_alternating_steps_are_steady_and_their_mean_is_exact(run, ticking):
    """2 and 4 ms in turns: nothing to doubt, and the rate is that of the mean, 3 ms, which no median would give."""
    model = {**TIMED, "slow_every": 2, "slow_factor": 2.0}
    result = run(model=model, measure={**MEASURE, "min_steps": 120, "max_steps": 120})
    assert result.metrics["step_seconds"].value == pytest.approx(0.003, rel=0.1)
    assert "unsteady_window" not in [doubt.code for doubt in result.doubts]


def test_a_module_that_fails_on_the_meta_device_is_not_counted_and_has_a_reason(run, own_module):
    body = "return self.weight.sum() * float(batch.sum().item())"
    result = run(measure=PROBED, model=own_module(body))
    assert result.outcome is Outcome.measured, result.traceback
    assert result.metrics["model_flops_per_sample"].reason.startswith("not counted: the step raised")
    assert result.metrics["mfu"].reason.startswith("not counted")


CNN = {"_target_": "accelsweep.workloads.image_models.SmallCNN", "width": 4}
LSTM = {"_target_": "accelsweep.workloads.language_models.LSTMLanguageModel", "vocabulary": 50, "hidden": 8}
H100 = "NVIDIA H100 80GB HBM3"


@pytest.mark.parametrize(
    ("model", "override", "withheld"), [(CNN, None, True), (LSTM, None, True), (MLP, None, False), (CNN, "0", False)]
)
def test_utilisation_is_withheld_where_convolutions_and_products_have_different_peaks(
    spec, tmp_path, monkeypatch, model, override, withheld
):
    """With torch's defaults, an H100 computes convolutions in TF32 and products in float32; its ceiling is cached."""
    if override is not None:
        monkeypatch.setenv("NVIDIA_TF32_OVERRIDE", override)
    ceilings = tmp_path / "ceilings.json"
    cached_ceiling(ceilings, f"{H100}, float32, 1 threads", lambda: Ceiling(50e12, 8192))
    made = spec(model=model, data=DIGITS, ceilings=ceilings)
    effective = Effective(
        accelerator="cuda", device_names=(H100,), world_size=1, num_nodes=1, precision="32-true", strategy="auto",
        loop="raw", launcher="fork", threads_per_rank=1, batch_size=2, global_batch_size=2, warmup_steps=1,
        window_steps=1, optimizer="SGD",
    )  # fmt: skip
    inputs = torch.zeros(2, 5, dtype=torch.long) if model is LSTM else torch.zeros(2, 1, 8, 8)
    example = inputs.to("meta"), torch.zeros(inputs.shape if model is LSTM else 2, dtype=torch.long, device="meta")
    found = flops_metrics(made, torch.device("cuda"), example, effective, 1000.0)
    assert found["model_flops_per_second"].value > 0
    for name in ("mfu", "mfu_of_datasheet"):
        if withheld:
            assert "cuDNN's layers ran in tf32 and matrix products in float32" in found[name].reason
        else:
            assert 0 < found[name].value < 1


@pytest.mark.timing
@pytest.mark.real
@BOTH_LOOPS
def test_a_stall_in_one_rank_is_communication_in_the_other(spec, tmp_path, loop):
    """Rank 1 spins 30 ms, rank 0 for 10 ms: 20 ms forward on average, and 10 ms of waiting beside other costs."""
    model = {**TIMED, "seconds": 0.01, "stalled_rank": 1, "stall_seconds": 0.02}
    first, second = run_ranks(spec(devices=2, loop=loop, measure=PROBED, model=model), tmp_path)
    assert first.breakdown == second.breakdown
    found = first.breakdown.shares
    waiting = found["communication"] + found["overhead"]  # Lightning's own flag makes rank 0 wait there as well
    step_seconds = first.breakdown.step_seconds
    assert waiting * step_seconds >= 0.009
    if "busy_cpu" not in [doubt.code for doubt in first.doubts]:  # two ranks that spin need two cores of their own
        assert 0.019 < found["forward"] * step_seconds < 0.025
    assert first.metrics["step_seconds"].value >= 0.03
    assert math.isfinite(first.metrics["rank_skew_seconds"].value)


@pytest.mark.real
@pytest.mark.parametrize("loop", ["raw", pytest.param("lightning", marks=pytest.mark.long)])  # both loops count alike
@pytest.mark.timing  # beside other tests, both ranks may be idle for so long that the result of the pass is withheld
def test_two_ranks_of_a_real_model_have_a_communication_share(spec, tmp_path, loop):
    first, _ = run_ranks(spec(devices=2, loop=loop, measure=PROBED, model=MLP, data=DIGITS), tmp_path)
    assert 0 < first.breakdown.shares["communication"] < 1
    assert sum(first.breakdown.shares.values()) == pytest.approx(1.0)


def test_a_training_step_without_batch_idx_is_counted(run, tmp_path):
    (tmp_path / "numberless.py").write_text(
        "import lightning.pytorch as pl, torch\n"
        "class Module(pl.LightningModule):\n"
        "    def __init__(self):\n"
        "        super().__init__()\n"
        "        self.layer = torch.nn.Linear(1, 3)\n"
        "    def training_step(self, batch):\n"
        "        return self.layer(batch).sum()\n"
    )
    result = run(measure=PROBED, model={"_target_": "numberless.Module"})
    assert result.metrics["model_flops_per_sample"].value == 2 * 2 * 3, "forward, and the gradient of the weights"


PROFILED = {**MEASURE, "matmul_steps": 3, "warmup_steps": 2, "min_steps": 2, "max_steps": 2}
VECTORS = {"_target_": "accelsweep.workloads.datasets.RandomVectors", "features": 512, "classes": 512, "samples": 512}
WIDE = {"_target_": "accelsweep.workloads.image_models.MLP", "features": 512, "width": 1024, "classes": 512}


@BOTH_LOOPS
def test_a_wide_perceptron_is_mostly_matrix_products(run, loop):
    share = run(loop=loop, model=WIDE, data=VECTORS, batch_size=128, measure=PROFILED).metrics["matmul_time_share"]
    assert 0.5 < share.value < 1.0
    assert share.provenance == "torch.profiler"


def test_a_waiting_step_has_no_matmul_share(run):
    assert run(measure=PROFILED).metrics["matmul_time_share"].value < 0.01


def test_without_matmul_steps_there_is_no_matmul_share(run):
    assert "matmul_time_share" not in run().metrics
