"""Measurements on an asynchronous device, against what the device was programmed to do."""

from __future__ import annotations

import itertools

import device_work
import pytest
import torch
from one_rank import BOTH_LOOPS, DIGITS

from accelsweep.measure.energy import EnergyMeter
from accelsweep.results import Outcome
from accelsweep.worker.rank_measurement import telemetry_identities

MIB = 2**20
STEPS = {"warmup_steps": 4, "min_steps": 20, "max_steps": 20, "min_seconds": 0.0}
INSIDE = slice(4, 24)
TRUTH = {"forward": 0.010, "backward": 0.020, "optimizer": 0.005}
LONG = {"warmup_steps": 4, "min_steps": 60, "max_steps": 60, "min_seconds": 0.0}
PROBED = STEPS | {"probe_steps": 20, "min_seconds": 5.0}
SEEN = {}
"""What one run of the programmed truth left in each loop: its result, and who had waited as its steps began."""


@pytest.fixture
def seen(simulated, run, loop):
    """One run of the programmed truth, for several tests to look at."""
    if loop not in SEEN:
        simulated()
        SEEN[loop] = run(measure=PROBED, loop=loop, **TRUTH), device_work.WAITS[INSIDE]
    return SEEN[loop]


@BOTH_LOOPS
def test_the_window_holds_what_was_queued_in_it_and_steps_have_their_programmed_length(seen):
    """The host launches a step in a fraction of a millisecond and runs ahead by almost the whole window."""
    found, _ = seen
    assert found.outcome is Outcome.measured, found.traceback
    assert found.metrics["window_seconds"].value == pytest.approx(20 * 0.035, rel=0.02)
    assert found.metrics["step_seconds"].value == pytest.approx(0.035, rel=0.02)
    assert found.metrics["samples_per_second"].value == pytest.approx(8 / 0.035, rel=0.02)
    assert found.effective.device_names == ("Simulated device",)
    assert found.effective.accelerator == "simulated"
    assert found.metrics["matmul_ceiling_flops_per_second"].value == pytest.approx(1e9, rel=0.01)


@BOTH_LOOPS
def test_nothing_waits_for_the_device_inside_the_window(seen):
    _, inside = seen
    assert len(inside) == 20
    assert len(set(inside)) == 1, inside


@BOTH_LOOPS
def test_mixed_precision_does_not_make_anything_wait(simulated, run, loop):
    simulated()
    found = run(measure=STEPS, loop=loop, precision="bf16-mixed", **TRUTH)
    assert found.outcome is Outcome.measured, found.traceback
    inside = device_work.WAITS[INSIDE]
    assert len(inside) == 20
    assert len(set(inside)) == 1, inside


def test_a_step_that_reads_its_loss_is_seen_to_wait(simulated, run, monkeypatch):
    """The counter itself: a module that asks for a number waits once a step."""
    simulated()
    trains = device_work.Worked.training_step

    def reading(module, batch, number):
        loss = trains(module, batch, number)
        float(loss)
        return loss

    monkeypatch.setattr(device_work.Worked, "training_step", reading)
    run(measure=STEPS, loop="raw", **TRUTH)
    inside = device_work.WAITS[INSIDE]
    assert [later - earlier for earlier, later in itertools.pairwise(inside)] == [1] * (len(inside) - 1)


@BOTH_LOOPS
def test_loss_scaling_waits_once_a_step_and_that_is_torchs_own(simulated, run, loop):
    """`GradScaler` asks whether a gradient is infinite before it lets the optimiser step."""
    simulated()
    run(measure=STEPS, loop=loop, precision="16-mixed", **TRUTH)
    inside = device_work.WAITS[INSIDE]
    assert {later - earlier for earlier, later in itertools.pairwise(inside)} == {1}


@BOTH_LOOPS
def test_the_parts_of_a_step_are_those_that_were_programmed(seen):
    found = seen[0].breakdown
    for part, seconds in TRUTH.items():
        assert found.shares[part] == pytest.approx(seconds / 0.035, abs=0.02), part
    assert found.step_seconds == pytest.approx(0.035, rel=0.02)
    assert found.device_behind == 1.0
    assert found.verdict == "compute-bound"


@BOTH_LOOPS
def test_a_device_that_waits_for_launches_is_overhead_bound(simulated, run, loop):
    simulated(launch_seconds=1e-3, kernel_seconds=1e-5)
    found = run(measure=PROBED, loop=loop, small=30).breakdown
    assert found.device_behind < 0.1
    assert found.verdict.startswith("overhead-bound"), found


def test_data_that_come_late_are_waited_for_only_as_long_as_the_device_is_idle(simulated, run):
    simulated()
    slow = {"_target_": "accelsweep.testing.calibration.TimedData", "wait_seconds": 0.005}
    shares = {}
    for forward in (0.0, 0.020):
        found = run(measure=PROBED, loop="raw", data=slow, forward=forward)
        shares[forward] = found.breakdown.shares["data_wait"]
        assert found.metrics["step_seconds"].value == pytest.approx(max(0.005, forward), rel=0.03)
    assert shares[0.0] > 0.9
    assert shares[0.020] < 0.02


@BOTH_LOOPS
def test_no_memory_left_in_any_part_is_out_of_memory_and_the_next_run_is_clean(simulated, run, loop):
    """A part that left anything behind would leave too little for the last run, which needs almost all in each part."""
    device = simulated(memory_bytes=64 * MIB)
    quality, parts = {"quality_samples": 16}, ("forward", "backward", "optimizer", "validation")
    for part in parts:
        found = run(measure=STEPS | quality, loop=loop, bytes_in={part: 65 * MIB})
        assert (found.outcome, found.error_kind) == (Outcome.out_of_memory, "out_of_memory"), (part, found.traceback)
        assert "simulated device is out of memory" in found.reason
    again = run(measure=STEPS | quality, loop=loop, bytes_in=dict.fromkeys(parts, 60 * MIB))
    assert again.outcome is Outcome.measured, again.traceback
    assert device.allocator.peak_allocated <= 64 * MIB


@BOTH_LOOPS
def test_the_peak_of_memory_is_what_the_module_holds_at_once(simulated, run, loop):
    """The device's memory is read before Lightning's teardown frees it."""
    simulated(memory_bytes=256 * MIB)
    found = run(measure=STEPS, loop=loop, bytes_in={"backward": 100 * MIB, "forward": 50 * MIB}).metrics
    assert found["peak_memory_allocated_bytes"].value == pytest.approx(100 * MIB, rel=0.001)
    assert found["peak_memory_reserved_bytes"].value >= found["peak_memory_allocated_bytes"].value
    assert found["device_memory_used_bytes"].value == found["peak_memory_reserved_bytes"].value


def test_memory_that_a_module_keeps_of_every_step_is_doubted(simulated, run):
    simulated()
    kept = run(measure=LONG, loop="raw", kept=MIB)
    (doubt,) = [doubt for doubt in kept.doubts if doubt.code == "memory_grows"]
    assert "memory on the device grew throughout the window, by 60 MiB (1 MiB per step)" in doubt.message
    assert "memory_grows" not in [doubt.code for doubt in run(measure=LONG, loop="raw").doubts]


@BOTH_LOOPS
@pytest.mark.parametrize(
    ("placement", "fake", "copied"),
    [("loader", False, True), ("pinned", False, True), ("resident", False, False), ("loader", True, False)],
)
def test_only_data_that_lie_on_the_host_are_copied_inside_the_window(simulated, run, loop, placement, fake, copied):
    """A batch of 8 pictures of 64 floats takes 2 ms at a megabyte a second."""
    simulated(copy_bytes_per_second=1e6)
    data = DIGITS | {"placement": placement}
    found = run(measure=(PROBED if copied else STEPS) | {"fake_loader": fake}, loop=loop, data=data)
    assert found.outcome is Outcome.measured, found.traceback
    if copied:
        assert found.metrics["host_to_device_share"].value > 0.8
    assert (found.metrics["step_seconds"].value > 0.002) is copied
    assert len(set(device_work.WAITS[INSIDE])) == 1, "nothing waits, wherever the data lie"
    copies = device_work.COPIES[INSIDE]
    assert (copies[-1] - copies[0]) == (19 * 2 if copied else 0), "pictures and classes of each step"


def test_energy_is_the_power_that_was_programmed_over_the_window(simulated, run):
    """Of each step the device works 35 ms at 300 W, and 5 ms it waits at 100 W. The last step begins after its data."""
    simulated(watts_idle=100.0, watts_busy=300.0)
    late = {"_target_": "accelsweep.testing.calibration.TimedData", "wait_seconds": 0.040}
    found = run(measure=LONG, loop="raw", data=late, **TRUTH).metrics
    assert found["window_seconds"].value == pytest.approx(60 * 0.040 + 0.035, rel=0.01)
    assert found["energy_joules"].value == pytest.approx(60 * 0.035 * 300 + (60 * 0.005 + 0.035) * 100, rel=0.01)


def test_a_meter_reads_every_board_that_it_is_told_while_it_is_open(simulated):
    simulator = simulated(watts_idle=100.0, watts_busy=300.0)
    (board,) = telemetry_identities(torch.device("simulated", 0))
    meter = EnergyMeter("simulated", [board, board])
    assert meter.result.reason == "unavailable: the meter was not read"
    with meter:
        simulator.clock.spend(2.0)
    assert meter.result.value == pytest.approx(2 * 2.0 * 100.0, rel=0.01)
    with meter:
        simulator.clock.spend(0.5)
    assert meter.result.reason.startswith("withheld: the counter is updated every 0.1 s"), "too short for NVML"


def test_a_device_that_slows_down_inside_the_window_is_doubted_and_one_that_does_not_is_not(simulated, run):
    simulated()
    assert {doubt.code for doubt in run(measure=LONG, loop="raw", **TRUTH).doubts} <= {"busy_cpu", "cpu_governor"}
    simulated(throttled_after=1.0, throttle=1.5)
    found = run(measure=LONG, loop="raw", **TRUTH)
    codes = {doubt.code for doubt in found.doubts}
    assert {"throttled", "unsteady_window"} <= codes
    assert (
        "Simulated device ran slower than it could: heat"
        in next(d for d in found.doubts if d.code == "throttled").message
    )


def test_a_single_stall_is_no_change_of_level(simulated, run):
    simulated(stalls=((1.0, 0.5),))
    found = run(measure=LONG, loop="raw", **TRUTH)
    assert "unsteady_window" not in {doubt.code for doubt in found.doubts}
    assert found.metrics["window_seconds"].value == pytest.approx(60 * 0.035 + 0.5, rel=0.02)
