"""The matmul ceiling, with a device whose speed is known, and once with the real one."""

import pytest
import torch

from accelsweep.devices.cpu import CpuDevice
from accelsweep.measure import flops as room
from accelsweep.measure.flops import Ceiling, cached_ceiling, matmul_ceiling, number_format, torch_matmul


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
    assert asked == [room.MIN_SIZE]
    assert found.flops_per_second == pytest.approx(2.0 * room.MIN_SIZE**3)


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
    monkeypatch.setattr(torch, "get_float32_matmul_precision", lambda: "high")
    assert number_format("32-true", "cuda") == "tf32"
    assert number_format("32-true", "cpu") == "float32"


def test_a_real_product_of_this_cpu_has_a_ceiling():
    found = matmul_ceiling(torch_matmul(torch.device("cpu"), "float32"), CpuDevice())
    assert 1e8 < found.flops_per_second < 1e14
    assert found.size >= room.MIN_SIZE
