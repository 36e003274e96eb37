"""How often a healthy run is doubted, simulated with fixed seeds: at most once in a hundred for each doubt.

What is healthy is stated by each simulation. `throttled`, `cpu_governor`, `foreign_process` and `epoch_boundary` have
no rate: they report a fact that a counter, a file or a list shows, and a healthy run shows none.
"""

from __future__ import annotations

import random

import pytest

from accelsweep.measure import run_doubts
from accelsweep.measure.machine_state import foreign_cores
from accelsweep.measure.run_doubts import level_shift
from accelsweep.measure.stalls import find_stalls
from accelsweep.measure.window import WindowRules
from accelsweep.run_environment import MachineState

RUNS = 500
ALLOWED = RUNS // 100


def step_times(rng, count, spread=0.2, stalls=0.01):
    """Skewed noise, and a stall of ten steps' length once in a hundred steps."""
    return [rng.lognormvariate(0.0, spread) * (10.0 if rng.random() < stalls else 1.0) * 0.002 for _ in range(count)]


def test_a_window_planned_from_a_noisy_warm_up_is_seldom_too_short():
    rng, alarms = random.Random(1), 0
    rules = WindowRules(warmup_steps=20, min_steps=50, min_seconds=1.5, max_steps=50_000)
    for _ in range(RUNS):
        steps = rules.window_steps(step_times(rng, rules.warmup))
        alarms += run_doubts.short_window(sum(step_times(rng, steps)), 1.5) is not None
    assert alarms <= ALLOWED


def test_a_window_twice_as_fast_as_its_warm_up_is_too_short():
    rng = random.Random(2)
    rules = WindowRules(warmup_steps=20, min_steps=50, min_seconds=1.5, max_steps=50_000)
    steps = rules.window_steps(step_times(rng, 20, stalls=0.0))
    assert run_doubts.short_window(0.5 * sum(step_times(rng, steps, stalls=0.0)), 1.5) is not None


@pytest.mark.parametrize("cores", [2, 16, 128])
def test_what_a_quiet_system_does_beside_us_is_seldom_called_busy(monkeypatch, cores):
    """We fill every core; the system itself takes 0.5 % of them on average, counters move in steps of 10 ms a core."""
    monkeypatch.setattr(run_doubts, "allowed_cores", lambda: set(range(cores)))
    rng, alarms, seconds = random.Random(3), 0, 1.5
    for _ in range(RUNS):
        system = rng.expovariate(1 / (0.005 * cores * seconds))
        tick = sum(rng.uniform(-0.01, 0.01) for _ in range(cores))
        ours = 0.99 * cores * seconds
        reading = {"seconds": seconds, "ours": ours, "busy": ours + system + tick}
        alarms += run_doubts.busy_cpu(foreign_cores([reading]), ours / seconds) is not None
    assert alarms <= ALLOWED


@pytest.mark.parametrize("cores", [2, 16])
def test_somebody_who_takes_a_tenth_of_a_full_machine_is_always_noticed(monkeypatch, cores):
    monkeypatch.setattr(run_doubts, "allowed_cores", lambda: set(range(cores)))
    reading = {"seconds": 1.5, "ours": 0.9 * cores * 1.5, "busy": cores * 1.5}
    assert run_doubts.busy_cpu(foreign_cores([reading]), 0.9 * cores).code == "busy_cpu"


def test_a_device_at_its_temperature_is_seldom_called_drifting():
    """A warm device wanders by 2 degrees (one sigma) between two readings; a sensor gives whole degrees."""
    rng, alarms = random.Random(4), 0
    for _ in range(RUNS):
        first, second = (round(70 + rng.gauss(0, 2)) for _ in range(2))
        alarms += bool(
            run_doubts.device_doubts(*(MachineState.of({"devices": [{"celsius": one}]}) for one in (first, second)))
        )
    assert alarms <= ALLOWED


def test_what_a_healthy_machine_swaps_in_a_window_is_seldom_doubted():
    """Old pages come back now and then: 1 MiB on average."""
    rng = random.Random(5)
    assert sum(run_doubts.swapping(rng.expovariate(1 / 2**20)) is not None for _ in range(RUNS)) <= ALLOWED


def test_the_pages_that_a_healthy_run_waits_for_are_seldom_doubted():
    """A page now and then, one a second on average, in windows of 1.5 seconds."""
    rng, alarms = random.Random(7), 0
    for _ in range(RUNS):
        times, faults = rng.expovariate(1.0), 0
        while times < 1.5:
            times, faults = times + rng.expovariate(1.0), faults + 1
        alarms += run_doubts.page_faults(faults, 1.5) is not None
    assert alarms <= ALLOWED


@pytest.mark.parametrize("steps", [60, 600])
def test_steps_that_resemble_their_neighbours_are_seldom_called_unsteady(steps):
    """Noise of 3 % whose correlation with the next step is 0.5, which makes medians of bins wander too."""
    rng, alarms = random.Random(6), 0
    for _ in range(RUNS):
        level, times = 0.0, []
        for _ in range(steps):
            level = 0.5 * level + rng.gauss(0, 0.03)
            times.append(0.002 * (1 + level))
        alarms += level_shift(times) is not None
    assert alarms <= ALLOWED


@pytest.mark.parametrize(("spread", "steps"), [(0.02, 3), (0.2, 5), (0.2, 50), (0.2, 750), (0.5, 20), (0.5, 750)])
def test_steps_of_uneven_length_and_the_hiccups_of_a_system_are_seldom_called_stalls(spread, steps):
    """Five hiccups a second of 10 ms on average; a spread of 0.5 is that of sentences padded batch by batch."""
    rng, alarms = random.Random(8), 0
    for _ in range(RUNS):
        times = [rng.lognormvariate(0.0, spread) * 1.5 / steps for _ in range(steps)]
        at = rng.expovariate(5.0)
        while at < sum(times):
            times[rng.randrange(steps)] += rng.expovariate(1 / 0.01)
            at += rng.expovariate(5.0)
        alarms += bool(find_stalls(times, sum(times)))
    assert alarms <= ALLOWED


@pytest.mark.parametrize(("spread", "steps"), [(0.02, 5), (0.2, 50), (0.2, 750), (0.5, 20), (0.5, 750)])
def test_a_stop_of_half_a_minute_is_always_called_a_stall(spread, steps):
    rng = random.Random(9)
    for _ in range(RUNS):
        times = [rng.lognormvariate(0.0, spread) * 1.5 / steps for _ in range(steps)]
        times[rng.randrange(steps)] += 30.0
        assert [round(stall.seconds) for stall in find_stalls(times, sum(times))] == [30]


@pytest.mark.parametrize("whole", [1.5, 30.0, 3600.0])
def test_a_clock_that_is_slewed_to_the_right_time_is_no_gap(whole):
    """NTP slews by at most 500 millionths (adjtimex(2)): an hour is wrong by 1.8 s, and no window lasts that long."""
    doubted = run_doubts.clock_gap(whole * 500e-6) is not None
    assert doubted == (whole > 2000.0)
