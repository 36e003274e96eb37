"""The simulated device: the CPU's results to the last digit, an asynchronous host, and a memory budget."""

from __future__ import annotations

import itertools
import json
import subprocess
import sys
import threading

import pytest
import torch
from torch import nn
from torch.nn import functional
from torch.nn.attention import SDPBackend, sdpa_kernel

from accelsweep.errors import InputError
from accelsweep.testing.simulated_device import UUID, SimulatedTelemetry
from accelsweep.testing.simulated_kind import SimulatedKind
from accelsweep.testing.simulator import RealClock

MIB = 2**20


def mlp() -> nn.Module:
    return nn.Sequential(nn.Flatten(), nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 10))


def convolutions() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(1, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(128, 10)
    )


class Attention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer, self.last = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True), nn.Linear(64, 10)

    def forward(self, images):
        with sdpa_kernel(SDPBackend.MATH):  # the CPU has another kernel, whose last digits differ
            return self.last(self.layer(images.squeeze(1)).flatten(1))


def losses(device: str, build, optimizer, steps: int = 3) -> list[float]:
    torch.manual_seed(0)
    network = build().to(device)
    steppers = optimizer(network.parameters())
    drawn = torch.Generator().manual_seed(1)
    images = torch.randn(16, 1, 8, 8, generator=drawn).to(device)
    classes = torch.randint(10, (16,), generator=drawn).to(device)
    found = []
    for _ in range(steps):
        steppers.zero_grad()
        loss = functional.cross_entropy(network(images), classes)
        loss.backward()
        nn.utils.clip_grad_norm_(network.parameters(), 1.0)
        steppers.step()
        found.append(loss.detach())
    return [float(loss) for loss in found]


class Products(nn.Module):
    """Layers without a transposed weight."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Parameter(torch.randn(64, 32) / 8)
        self.last = nn.Parameter(torch.randn(32, 10) / 8)

    def forward(self, images):
        return torch.relu(images.flatten(1) @ self.first) @ self.last


def sgd(parameters):
    return torch.optim.SGD(parameters, lr=0.1, momentum=0.9)


def test_losses_equal_the_cpus_to_the_last_digit(simulated):
    simulated()
    expected = losses("cpu", Products, sgd)
    assert losses("simulated", Products, sgd) == expected
    assert len(set(expected)) == 3


@pytest.mark.parametrize("build", [mlp, convolutions, Attention])
def test_where_the_cpu_transposes_a_weight_its_sums_have_another_order(simulated, build):
    simulated()
    assert losses("simulated", build, sgd) == pytest.approx(losses("cpu", build, sgd), rel=1e-5)


@pytest.mark.parametrize("fused", [False, True])
def test_adam_takes_the_same_steps_in_its_two_forms(simulated, fused):
    simulated()

    def adam(parameters):
        return torch.optim.AdamW(parameters, fused=fused)

    assert losses("simulated", mlp, adam) == pytest.approx(losses("cpu", mlp, adam), rel=1e-5)


@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
def test_answers_are_the_cpus_too(simulated, mode):
    simulated()
    torch.manual_seed(0)
    network, images = convolutions().eval(), torch.randn(4, 1, 8, 8)
    with mode():
        expected = network(images)
        assert torch.allclose(network.to("simulated")(images.to("simulated")).cpu(), expected)


def test_the_host_goes_on_while_the_device_works_and_waits_when_it_reads(simulated):
    device = simulated(launch_seconds=1e-3)
    began = device.clock.now()
    torch.simulated.work(0.5)
    number = torch.ones(3, device="simulated").sum()
    assert device.clock.now() - began < 0.01
    assert device.waits == []
    assert number.item() == 3.0
    assert device.clock.now() - began > 0.5
    assert device.waits == ["item"]


def test_on_the_real_clock_an_operation_ends_no_sooner_than_it_is_told(simulated):
    device = simulated(clock=RealClock())
    first, last = torch.simulated.Event(enable_timing=True), torch.simulated.Event(enable_timing=True)
    first.record()
    torch.simulated.work(0.05)
    last.record()
    assert not last.query()
    torch.simulated.synchronize()
    assert last.query()
    assert first.elapsed_time(last) >= 50.0
    assert device.waits == ["synchronize"]


def test_events_have_the_devices_own_time(simulated):
    simulated(kernel_seconds=0.0, seconds={"aten.mm": 0.25}, launch_seconds=0.001)
    square = torch.ones(2, 2, device="simulated")
    marks = [torch.simulated.Event(enable_timing=True) for _ in range(3)]
    marks[0].record()
    for mark in marks[1:]:
        torch.mm(square, square)
        mark.record()
    torch.simulated.synchronize()
    # the first begins when it is launched, the second waits in the queue for no launch
    assert [a.elapsed_time(b) for a, b in itertools.pairwise(marks)] == pytest.approx([251, 250], abs=0.1)


def test_memory_is_counted_by_tensors_and_given_back_with_the_last_of_them(simulated):
    device = simulated(memory_bytes=64 * MIB).allocator
    first = torch.empty(MIB, device="simulated")
    view = first.view(2, -1)[1]
    assert device.allocated == 4 * MIB
    del first
    assert device.allocated == 4 * MIB
    del view
    assert (device.allocated, device.peak_allocated, device.reserved) == (0, 4 * MIB, 4 * MIB)
    device.empty_cache()
    device.reset_peaks()
    assert (device.reserved, device.peak_allocated, device.peak_reserved) == (0, 0, 0)


def test_peaks_are_those_since_they_were_reset(simulated):
    simulated(memory_bytes=64 * MIB)
    kind, device = SimulatedKind(), torch.device("simulated", 0)
    large = torch.empty(32 * MIB, dtype=torch.uint8, device=device)
    del large
    kind.reset_peak_memory(device)
    small = torch.empty(4 * MIB, dtype=torch.uint8, device=device)
    assert kind.memory(device).allocated == 4 * MIB
    del small


def test_memory_ends_exactly_at_the_budget(simulated):
    device = simulated(memory_bytes=8 * MIB).allocator
    kept = torch.empty(2 * MIB, device="simulated")
    assert device.allocated == 8 * MIB
    with pytest.raises(torch.OutOfMemoryError, match="simulated device is out of memory"):
        kept + 1
    del kept
    torch.empty(2 * MIB, device="simulated")


def test_an_error_of_the_device_reaches_whoever_waits_next(simulated):
    device = simulated()
    device.launch(0.0, lambda: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        torch.simulated.synchronize()
    torch.simulated.synchronize()


def test_copies_to_the_host_wait_and_those_to_the_device_only_if_they_block(simulated):
    device = simulated(copy_bytes_per_second=1e6, kernel_seconds=0.0)
    numbers = torch.ones(250_000)
    there = numbers.pin_memory().to("simulated", non_blocking=True)
    numbers.fill_(7.0)
    assert device.waits == []
    assert (device.timeline.free_at - device.clock.now()) == pytest.approx(1.0, rel=0.01)
    assert there.cpu().sum().item() == 250_000
    numbers.to("simulated")
    assert device.waits == ["copy to the host", "copy to the device"]


def test_stalls_and_throttling_come_after_as_much_work_as_they_are_told(simulated):
    device = simulated(stalls=((0.5, 2.0),), throttled_after=1.0, throttle=3.0)
    lengths = []
    for _ in range(3):
        before = max(device.timeline.free_at, device.clock.now())
        torch.simulated.work(0.5)
        lengths.append(device.timeline.free_at - before)
    assert lengths == pytest.approx([0.5, 2.5, 1.5], abs=1e-5)
    state = SimulatedTelemetry().state(UUID)
    assert state["held_back"]["heat"][0] == pytest.approx(1.5)
    assert state["sm_mhz"] < state["sm_mhz_max"]


def test_a_spec_with_an_unknown_key_is_refused_and_no_variable_is_no_device(simulated, tmp_path, monkeypatch):
    simulated()
    assert SimulatedKind().inventory()[0].accelerator == "simulated"
    (tmp_path / "device" / "device.json").write_text(json.dumps({"memory": 1}))
    with pytest.raises(InputError, match="the valid keys are model, memory_bytes"):
        SimulatedKind().inventory()
    monkeypatch.delenv("ACCELSWEEP_SIMULATED")
    assert SimulatedKind().inventory() == ()


def test_another_process_on_the_device_is_seen_and_its_memory_is_not_ours(simulated, tmp_path):
    device = simulated(memory_bytes=8 * MIB)
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE, start_new_session=True) as other:
        file = tmp_path / "device" / "processes" / f"{other.pid}.json"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(json.dumps({"bytes": 6 * MIB, "busy": 3.0, "held_back": 0.0}))
        state = SimulatedTelemetry().state(UUID)
        assert state["foreign_processes"] == [other.pid]
        assert state["memory_used_bytes"] == 6 * MIB
        assert torch.simulated.mem_get_info() == (2 * MIB, 8 * MIB)
        with pytest.raises(torch.OutOfMemoryError):
            device.allocator.take(3 * MIB)
        joules = SimulatedTelemetry().joules(UUID)
        other.kill()
    assert SimulatedTelemetry().state(UUID)["foreign_processes"] == []
    assert SimulatedTelemetry().joules(UUID) == pytest.approx(joules, rel=1e-6), "what it used it has used"
    device.allocator.take(8 * MIB)


def test_no_thread_is_started_before_the_first_operation(simulated):
    device = simulated()
    before = {thread.name for thread in threading.enumerate()}
    assert not device.started
    torch.empty(1, device="simulated")
    assert device.started
    assert {thread.name for thread in threading.enumerate()} >= before | {"simulated device"}
