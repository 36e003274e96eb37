"""Operations counted on the meta device, the matmul ceiling, and utilisation."""

from __future__ import annotations

import subprocess
import sys

import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

from accelsweep.devices.cpu import CpuDevice
from accelsweep.devices.datasheets import datasheet_flops_per_second
from accelsweep.measure import flops
from accelsweep.measure.flops import (
    Ceiling,
    NotCounted,
    cached_ceiling,
    cudnn_format,
    forward_traits,
    matmul_ceiling,
    number_format,
    torch_matmul,
    training_flops,
    utilisation_metrics,
)
from accelsweep.results import Traits

SAMPLES = 4


def count(make, *shape, forward=None):
    with torch.device("meta"):
        module, inputs = make(), torch.empty(SAMPLES, *shape)

    def step():
        found = forward(module, inputs) if forward else module(inputs)
        return (found[0] if isinstance(found, tuple) else found).mean()

    return training_flops(step).total


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


def test_recomputation_by_checkpointing_is_not_counted():
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


def traits_of(model: torch.nn.Module, *shape: int) -> Traits:
    """Return the traits of a pass over one batch of `shape` on the meta device."""
    meta = model.to("meta")
    return forward_traits(lambda: meta(torch.empty(shape, device="meta")), meta, shape[0])


def test_without_formulas_of_torchs_nothing_is_counted(monkeypatch):
    monkeypatch.setattr(flops, "_FORMULAS", {})
    with pytest.raises(NotCounted, match=r"counting requires torch 2.2 or later"):
        training_flops(lambda: torch.ones(()))


def test_convolutions_are_told_apart_by_their_groups():
    """A depthwise convolution reaches little of a device's peak, so its operations are counted apart."""
    both = torch.nn.Sequential(torch.nn.Conv2d(8, 8, 3, padding=1), torch.nn.Conv2d(8, 8, 3, padding=1, groups=8))
    found = traits_of(both, 4, 8, 10, 10)
    assert found.flops_convolution == 2 * 8 * 8 * 9 * 100
    assert found.flops_grouped == 2 * 8 * 9 * 100
    assert found.activations == 2 * 8 * 100, "per sample, whatever the batch"


def test_views_and_pointwise_operations_are_no_activations():
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


H100 = "NVIDIA H100 80GB HBM3"


def test_utilisation_is_the_models_operations_over_the_peak_of_all_devices():
    found = utilisation_metrics(1e9, Ceiling(400e12, 8192), 200_000.0, (H100, H100), "bfloat16")
    assert found["model_flops_per_second"].value == pytest.approx(200e12)
    assert found["mfu"].value == pytest.approx(200 / 800)
    assert found["mfu_of_datasheet"].value == pytest.approx(200 / (2 * 989.4))
    assert "bfloat16" in found["mfu"].scope


def test_missing_values_have_a_reason():
    found = utilisation_metrics("not counted: why", Ceiling(1e12, 512), 10.0, ("Some CPU",), "float32")
    assert {found[name].reason for name in ("model_flops_per_sample", "model_flops_per_second", "mfu")} == {
        "not counted: why"
    }
    assert found["matmul_ceiling_flops_per_second"].value == 1e12
    found = utilisation_metrics(1e6, "no matmul", 10.0, ("Some CPU",), "float32")
    assert found["mfu"].reason == "no matmul"
    assert found["mfu_of_datasheet"].reason == "no dense datasheet peak is known for Some CPU in float32"


def test_an_mfu_above_one_is_withheld():
    found = utilisation_metrics(1e9, Ceiling(1e12, 512), 2000.0, ("Some CPU",), "float32")
    assert "under other load" in found["mfu"].reason


@pytest.mark.parametrize(
    ("name", "form", "tera"),
    [
        (H100, "float32", 66.9),
        ("NVIDIA H100 PCIe", "bfloat16", 756.0),
        ("NVIDIA H200", "tf32", 494.5),
        ("NVIDIA A100-SXM4-80GB", "float16", 312.0),
        ("NVIDIA A100-PCIE-40GB", "float32", 19.5),
        ("NVIDIA A100 80GB PCIe", "bfloat16", 312.0),
        ("NVIDIA H200 NVL", "bfloat16", 835.5),
        ("NVIDIA GH200 480GB", "tf32", 494.5),
    ],
)
def test_the_table_of_datasheets_knows_boards_by_their_reported_names(name, form, tera):
    assert datasheet_flops_per_second(name, form) == tera * 1e12


@pytest.mark.parametrize(
    "name",
    [
        "NVIDIA RTX A1000 Laptop GPU",
        "NVIDIA H100 64GB HBM3",
        "NVIDIA A100-SXM4-40GB MIG 1g.5gb",
        "NVIDIA H100 80GB HBM3 MIG 1g.10gb",
        "NVIDIA A100-SXM-64GB",
    ],
)
def test_a_device_whose_name_only_resembles_a_listed_board_has_no_peak(name):
    """Other models, boards with other clocks, and slices of a board."""
    assert datasheet_flops_per_second(name, "bfloat16") is None


def test_a_device_or_format_without_a_sheet_has_no_peak():
    assert datasheet_flops_per_second("NVIDIA H100 NVL 2g", "bfloat16") is None
    assert datasheet_flops_per_second("Tesla T4", "bfloat16") is None
    assert datasheet_flops_per_second("Intel Xeon", "float32") is None


def test_the_ceiling_is_the_devices_speed_at_the_size_that_it_does_best(clock, device):
    """Launching takes 0.1 ms, so the largest size that the time allows comes nearest to 1 TFLOP/s."""
    asked = []

    def product(size):
        asked.append(size)
        return lambda: device.work(1e-4 + 2.0 * size**3 / 1e12)

    found = matmul_ceiling(product, device, clock)
    assert asked == [256, 512, 1024, 2048, 4096]
    assert found.size == 4096
    assert found.flops_per_second == pytest.approx(1e12, rel=0.01)


def test_the_best_product_counts_and_disturbed_ones_do_not(clock, device):
    delays = iter([0.02, 0.01, 0.03, 0.02, *[0.05] * 8])
    found = matmul_ceiling(lambda size: lambda: device.work(next(delays)), device, clock)
    assert found.size == 512
    assert found.flops_per_second == pytest.approx(2.0 * 512**3 / 0.05)


def test_a_slow_device_is_asked_for_one_product(clock, device):
    asked = []
    found = matmul_ceiling(lambda size: lambda: (asked.append(size), device.work(1.0)), device, clock)
    assert asked == [flops.MIN_SIZE]
    assert found.flops_per_second == pytest.approx(2.0 * flops.MIN_SIZE**3)


def test_a_ceiling_is_measured_once_per_key_and_kept_for_the_block(tmp_path):
    path, asked = tmp_path / "ceilings" / "block.json", []

    def measure():
        asked.append(1)
        return Ceiling(float(len(asked)), 256)

    assert cached_ceiling(path, "a", measure) == cached_ceiling(path, "a", measure) == Ceiling(1.0, 256)
    assert cached_ceiling(path, "b", measure) == Ceiling(2.0, 256)
    assert cached_ceiling(path, "a", measure) == Ceiling(1.0, 256)
    path.write_text("{")
    assert cached_ceiling(path, "a", measure) == Ceiling(3.0, 256)
    assert cached_ceiling(None, "a", measure) == Ceiling(4.0, 256)


def test_a_precision_has_the_format_of_its_products(monkeypatch):
    assert number_format("bf16-mixed", "cpu") == number_format("bf16-true", "cuda") == "bfloat16"
    assert number_format("16-mixed", "cuda") == "float16"
    assert number_format("64-true", "cpu") == "float64"
    assert number_format("32-true", "cuda") == "float32"
    assert number_format("transformer-engine", "cuda") is None
    monkeypatch.setattr(flops, "float32_matmul_precision", lambda: "high")
    assert number_format("32-true", "cuda") == "tf32"
    assert number_format("32-true", "cpu") == "float32"


@pytest.mark.parametrize("layer", ["conv", "rnn"])
def test_cudnns_layers_use_tf32_unless_told_otherwise(layer, monkeypatch):
    """Torch's defaults: products in float32, convolutions and recurrent layers in TF32."""
    assert cudnn_format("32-true", "cuda", layer) == "tf32"
    assert cudnn_format("32-true", "cpu", layer) == "float32"
    assert cudnn_format("bf16-mixed", "cuda", layer) == "bfloat16"
    assert cudnn_format("transformer-engine", "cuda", layer) is None
    monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", False)
    assert cudnn_format("32-true", "cuda", layer) == "float32"


@pytest.mark.parametrize(("capability", "form"), [((7, 5), "float32"), ((8, 0), "tf32"), ((9, 0), "tf32")])
def test_boards_before_ampere_have_no_tf32(capability, form, monkeypatch):
    monkeypatch.setattr(flops, "float32_matmul_precision", lambda: "high")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda: capability)
    assert number_format("32-true", "cuda") == cudnn_format("32-true", "cuda", "conv") == form


def test_without_tf32_in_nvidias_libraries_no_format_is_tf32(monkeypatch):
    monkeypatch.setattr(flops, "float32_matmul_precision", lambda: "high")
    monkeypatch.setenv("NVIDIA_TF32_OVERRIDE", "0")
    assert number_format("32-true", "cuda") == cudnn_format("32-true", "cuda", "conv") == "float32"


SETTINGS = {
    "pass": "highest float32 tf32 tf32",
    "torch.set_float32_matmul_precision('medium')": "medium tf32 tf32 tf32",
    "torch.backends.cuda.matmul.allow_tf32 = True": "high tf32 tf32 tf32",
    "torch.backends.cuda.matmul.fp32_precision = 'tf32'": "high tf32 tf32 tf32",
    "torch.set_float32_matmul_precision('high'); torch.backends.cuda.matmul.fp32_precision = 'ieee'": (
        "highest float32 tf32 tf32"
    ),
    "torch.backends.cudnn.rnn.fp32_precision = 'ieee'": "highest float32 tf32 float32",
}
SET = f"""
import os, torch
from accelsweep.measure.flops import cudnn_format, float32_matmul_precision, number_format
for setting in {[*SETTINGS]}:
    if (child := os.fork()) == 0:
        exec(setting)
        layers = (cudnn_format("32-true", "cuda", layer) for layer in ("conv", "rnn"))
        print(float32_matmul_precision(), number_format("32-true", "cuda"), *layers, flush=True)
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0, setting
"""


@pytest.mark.skipif(not hasattr(torch.backends.cudnn, "conv"), reason="torch before 2.9")
def test_precisions_are_read_however_they_were_set():
    """Torch refuses some questions after a change through its newer interface, for the rest of the process."""
    done = subprocess.run([sys.executable, "-c", SET], capture_output=True, text=True, check=True)
    assert dict(zip(SETTINGS, done.stdout.splitlines(), strict=True)) == SETTINGS


def test_convolutions_are_counted_apart():
    with torch.device("meta"):
        module = nn.Sequential(nn.Conv2d(3, 8, 3), nn.Flatten(), nn.Linear(8 * 6 * 6, 5))
        counted = training_flops(lambda: module(torch.empty(SAMPLES, 3, 8, 8)).mean())
    product = 2 * SAMPLES * (6 * 6) * 8 * (3 * 3 * 3)
    assert counted.convolution == 2 * product
    assert counted.total == 2 * product + 3 * 2 * SAMPLES * 8 * 6 * 6 * 5


def test_a_real_product_of_this_cpu_has_a_ceiling():
    found = matmul_ceiling(torch_matmul(torch.device("cpu"), "float32"), CpuDevice())
    assert 1e8 < found.flops_per_second < 1e14
    assert found.size >= flops.MIN_SIZE
