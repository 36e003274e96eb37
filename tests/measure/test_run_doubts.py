"""Doubts about a run: when they fire, what they say, and how rarely they fire for nothing."""

from __future__ import annotations

import random

import pytest

from accelsweep.measure import run_doubts
from accelsweep.measure.machine_state import foreign_cores
from accelsweep.measure.run_doubts import level_shift
from accelsweep.measure.stalls import find_stalls
from accelsweep.measure.timed_window import WindowRules
from accelsweep.results import bottleneck
from accelsweep.run_config import Measure
from accelsweep.run_environment import MachineState


def test_a_window_much_shorter_than_min_seconds_or_min_steps_is_doubted():
    asked = Measure(warmup_steps=20, min_steps=50, min_seconds=1.0, max_steps=100)
    assert run_doubts.short_window(0.7, 50, asked).code == "short_window"
    assert run_doubts.short_window(0.9, 50, asked) is None
    assert run_doubts.short_window(3.1, 14, asked).message == (
        "the window had 14 steps in 3.10 s, but 50 steps and 1 s were requested"
    )


def test_foreign_load_is_doubted_only_if_it_can_have_taken_time_from_us(monkeypatch):
    monkeypatch.setattr(run_doubts, "allowed_cores", lambda: set(range(4)))
    assert run_doubts.busy_cpu(1.0, 3.0).code == "busy_cpu"
    assert run_doubts.busy_cpu(1.0, 1.0) is None, "two cores were idle"
    assert run_doubts.busy_cpu(0.05, 3.95) is None, "what an idle system does by itself"
    assert run_doubts.busy_cpu(None, 3.0) is None, "not known is not busy"


def test_foreign_cores_are_the_busy_time_of_our_cores_less_ours():
    ranks = [{"seconds": 10.0, "ours": 9.0, "busy": 25.0}, {"seconds": 10.0, "ours": 8.0, "busy": 25.0}]
    assert foreign_cores(ranks) == (25.0 - 17.0) / 10.0


def test_foreign_load_is_unknown_if_counters_show_less_than_our_own_use():
    assert foreign_cores([{"seconds": 10.0, "ours": 9.0, "busy": 0.0}]) is None
    assert foreign_cores([{}]) is None


def test_swapping_and_epoch_boundaries_are_doubted():
    assert run_doubts.swapping(100 * 2**20).code == "swap"
    assert run_doubts.swapping(2**20) is None
    assert run_doubts.epoch_boundary(2).code == "epoch_boundary"
    assert run_doubts.epoch_boundary(0) is None


def test_major_page_faults_are_doubted_by_their_rate():
    doubt = run_doubts.page_faults(40.0, 2.0)
    assert (doubt.code, "40 pages" in doubt.message, "20 per second" in doubt.message) == ("page_faults", True, True)
    assert run_doubts.page_faults(40.0, 60.0) is None
    assert run_doubts.page_faults(0.0, 0.0) is None


def states(**after):
    calm = {"name": "GPU", "throttles": [], "celsius": 40, "foreign_processes": []}
    return devices(calm), devices({**calm, **after})


def devices(*states):
    return MachineState.of({"devices": states})


def test_a_throttled_hot_or_shared_device_is_doubted():
    assert [doubt.code for doubt in run_doubts.device_doubts(*states(throttles=["HwSlowdown"]))] == ["throttled"]
    assert [doubt.code for doubt in run_doubts.device_doubts(*states(celsius=60))] == ["temperature_drift"]
    assert [doubt.code for doubt in run_doubts.device_doubts(*states(foreign_processes=[123]))] == ["foreign_process"]
    assert run_doubts.device_doubts(*states()) == []


def test_a_device_at_its_power_limit_is_capped_and_neither_throttled_nor_disturbed():
    (doubt,) = run_doubts.device_doubts(*states(throttles=["SwPowerCap"]))
    assert (doubt.code, doubt.disturbing) == ("power_capped", False)


def test_a_device_throttled_only_as_the_window_opened_is_doubted():
    hot = {"name": "GPU", "throttles": ["HwSlowdown"]}
    (doubt,) = run_doubts.device_doubts(devices(hot), devices({"name": "GPU", "throttles": []}))
    assert (doubt.code, "HwSlowdown" in doubt.message) == ("throttled", True)


@pytest.mark.parametrize(
    ("first", "last", "words"),
    [
        ([2.0, 100.0], [2.5, 105.0], "heat for 10% of the time"),
        ([2.0, 100.0], [2.04, 105.0], None),
        ([2.0, 100.0], [2.0, 105.0], None),
        ([2.0, 100.0], [9.0, 100.0], None),
        (None, [9.0, 105.0], None),
        ([2.0, 100.0], None, None),
    ],
    ids=["a tenth", "below the threshold", "never", "a clock that stands", "unknown before", "unknown after"],
)
def test_throttling_between_the_readings_is_found_by_the_drivers_counters(first, last, words):
    calm = {"name": "GPU", "throttles": []}
    states = [devices({**calm, "held_back": {"heat": counted, "power cap": None}}) for counted in (first, last)]
    found = run_doubts.device_doubts(*states)
    assert [words in doubt.message for doubt in found] == ([] if words is None else [True])


def series_codes(doubts=(), **readings):
    found = run_doubts.with_series_doubts(doubts, {0: readings}, ("GPU",))
    return {doubt.code: doubt.message for doubt in found}


def test_doubts_on_a_device_rest_on_what_was_read_during_the_window():
    capped = [1.0] * 9 + [0.0]
    assert series_codes(power_capped=capped, power_limit_watts=[700.0] * 10) == {
        "power_capped": "GPU was at its power limit (700 W) for 90% of the window"
    }
    assert series_codes(throttled=[0.0, 0.2]) == {"throttled": "GPU ran slower than it could for 10% of the window"}
    assert series_codes(celsius=[40.0, 40, 40, 50, 60, 60, 60]) == {
        "temperature_drift": "GPU changed from 40 to 60 degrees Celsius during the window"
    }
    assert series_codes(foreign_processes=[0, 0, 1, 2]) == {
        "foreign_process": "other processes were using GPU in 2 of 4 readings"
    }


def test_a_calm_window_takes_back_what_two_states_around_it_suggested():
    before = [*run_doubts.device_doubts(*states(celsius=60)), *run_doubts.device_doubts(*states(foreign_processes=[7]))]
    assert series_codes(before, celsius=[58.0] * 8, foreign_processes=[0.0] * 8) == {}
    assert set(series_codes(before, sm_mhz=[1500.0] * 8)) == {"temperature_drift", "foreign_process"}


def test_few_readings_of_the_temperature_take_nothing_back():
    before = run_doubts.device_doubts(*states(celsius=60))
    assert set(series_codes(before, celsius=[58.0] * 4)) == {"temperature_drift"}


def test_a_device_that_was_not_read_keeps_the_doubts_on_it():
    before = run_doubts.device_doubts(*states(foreign_processes=[7]))
    readings = {0: {"foreign_processes": [0.0] * 9}, 1: {"sm_mhz": [1500.0] * 9}}
    assert run_doubts.with_series_doubts(before, readings, ("GPU",)) == before


def test_foreign_processes_are_named_if_they_were_seen_at_either_end():
    before = run_doubts.device_doubts(*states(foreign_processes=[7]))
    message = series_codes(before, foreign_processes=[0, 1])["foreign_process"]
    assert message == "other processes were using GPU in 1 of 2 readings (other processes are using GPU: 7)"


def test_the_drivers_own_reason_for_throttling_is_kept():
    before = run_doubts.device_doubts(*states(throttles=["HwSlowdown"]))
    assert "HwSlowdown" in series_codes(before, throttled=[1.0, 1.0])["throttled"]


def test_each_of_several_devices_is_named():
    found = run_doubts.with_series_doubts((), {0: {"throttled": [1.0]}, 1: {"throttled": [0.0]}}, ("GPU",))
    assert [doubt.message.startswith("GPU 0 ") for doubt in found] == [True]


@pytest.mark.parametrize("name", ["powersave", "schedutil", "ondemand"])
def test_clocks_that_follow_the_load_are_doubted_with_what_to_do(name):
    doubt = run_doubts.governor(name)
    assert (doubt.code, name in doubt.message) == ("cpu_governor", True)
    assert "cpupower frequency-set --governor performance" in doubt.remedy


@pytest.mark.parametrize("name", ["performance", None])
def test_fixed_or_unknown_clocks_are_no_doubt(name):
    assert run_doubts.governor(name) is None


def test_unknown_device_states_are_no_doubt():
    assert run_doubts.device_doubts(*states(throttles=None, celsius=None, foreign_processes=None)) == []
    assert run_doubts.device_doubts(devices({"reason": "NVML: absent"}), devices({"reason": "NVML: absent"})) == []
    assert run_doubts.device_doubts(MachineState(), MachineState()) == []


def noise(rng, count, level=1.0, spread=0.05):
    return [max(1e-9, rng.gauss(level, spread * level)) for _ in range(count)]


def test_a_step_time_that_falls_by_a_fifth_halfway_is_seen_where_it_happened():
    rng = random.Random(1)
    shift = level_shift(noise(rng, 300) + noise(rng, 300, level=0.8))
    assert 0.4 < shift.at < 0.6
    assert abs(shift.before_seconds - 1.0) < 0.02
    assert abs(shift.after_seconds - 0.8) < 0.02


def test_steady_windows_are_called_unsteady_less_than_once_in_a_hundred():
    """With noise of 20 % the smallest-shift rule alone would not hold it back: the t statistic must."""
    rng = random.Random(2)
    false_alarms = sum(level_shift(noise(rng, 60, spread=0.2)) is not None for _ in range(500))
    assert false_alarms <= 4


def test_rare_stalls_and_two_step_times_in_turn_are_steady():
    rng = random.Random(3)
    stalls = [value * (20 if index % 97 == 0 else 1) for index, value in enumerate(noise(rng, 600))]
    bimodal = [value * (1.5 if index % 2 else 1.0) for index, value in enumerate(noise(rng, 600))]
    assert level_shift(stalls) is None
    assert level_shift(bimodal) is None


def test_the_level_is_what_most_steps_take():
    """Stalls that begin halfway, one in twenty steps, are for the mean and the quantiles to show."""
    rng = random.Random(5)
    late = [value * (20 if index > 300 and index % 20 == 7 else 1) for index, value in enumerate(noise(rng, 600))]
    assert level_shift(late) is None


def test_a_small_level_shift_is_ignored():
    rng = random.Random(4)
    assert level_shift(noise(rng, 3000, spread=0.01) + noise(rng, 3000, level=1.02, spread=0.01)) is None


def drifting(rng, whole, spread=0.02, count=600):
    return [1.0 + whole * step / count + rng.gauss(0, spread) for step in range(count)]


def wandering(rng, whole, spread=0.02, count=600):
    """A step time that walks at random, by `whole` (one sigma) from the first step to the last."""
    level, found = 1.0, []
    for _ in range(count):
        level += rng.gauss(0, whole / count**0.5)
        found.append(level + rng.gauss(0, spread))
    return found


def test_a_drift_over_the_whole_window_is_seen_from_an_eighth_of_the_step_on():
    """A drift differs between two levels by half of itself only: 3 % are never seen, 13 % nearly always."""
    rng = random.Random(6)
    assert sum(level_shift(drifting(rng, 0.03)) is not None for _ in range(100)) == 0
    assert sum(level_shift(drifting(rng, 0.13)) is not None for _ in range(100)) >= 95


def test_a_threshold_for_drifts_of_three_percent_would_raise_false_alarms(monkeypatch):
    """A machine whose pace wanders by 1 % is no reason to doubt a window. At 1 % it is called unsteady too often."""
    rng = random.Random(7)
    walks = [wandering(rng, 0.01) for _ in range(200)]
    assert sum(level_shift(walk) is not None for walk in walks) == 0
    monkeypatch.setattr(run_doubts, "MIN_SHIFT", 0.01)
    assert sum(level_shift(walk) is not None for walk in walks) > 0.05 * len(walks)


def test_too_few_steps_give_no_verdict():
    assert level_shift([1.0] * 29 + [2.0] * 30) is None


QUICK = Measure(warmup_steps=20, min_steps=50, min_seconds=1.5, max_steps=50_000)
RUNS = 500
ALLOWED = RUNS // 100


def step_times(rng, count, spread=0.2, stalls=0.01):
    """Skewed noise, and a stall of ten steps' length once in a hundred steps."""
    return [rng.lognormvariate(0.0, spread) * (10.0 if rng.random() < stalls else 1.0) * 0.002 for _ in range(count)]


def test_a_window_planned_from_a_noisy_warm_up_is_seldom_too_short():
    rng, alarms = random.Random(1), 0
    rules = WindowRules.from_config(QUICK)
    for _ in range(RUNS):
        steps = rules.window_steps(step_times(rng, rules.warmup_steps))
        alarms += run_doubts.short_window(sum(step_times(rng, steps)), steps, QUICK) is not None
    assert alarms <= ALLOWED


def test_a_window_twice_as_fast_as_its_warm_up_is_too_short():
    rng = random.Random(2)
    rules = WindowRules.from_config(QUICK)
    steps = rules.window_steps(step_times(rng, 20, stalls=0.0))
    assert run_doubts.short_window(0.5 * sum(step_times(rng, steps, stalls=0.0)), steps, QUICK) is not None


@pytest.mark.parametrize("cores", [2, 16, 128])
def test_background_load_of_a_quiet_system_is_rarely_doubted(monkeypatch, cores):
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
def test_a_tenth_of_a_full_machine_is_always_doubted(monkeypatch, cores):
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


def test_recompilations_in_the_window_are_doubted_with_their_reasons() -> None:
    assert run_doubts.recompiled(0, ()) is None
    doubt = run_doubts.recompiled(2, ("tensor 'x' size mismatch at index 0. expected 32, actual 7",))
    assert doubt is not None
    assert doubt.message == (
        "2 graphs were compiled within the window: tensor 'x' size mismatch at index 0. expected 32, actual 7"
    )


def test_a_precision_of_matrix_products_that_the_code_replaced_is_doubted() -> None:
    assert run_doubts.other_matmul_precision(None, "high") is None
    assert run_doubts.other_matmul_precision("high", "high") is None
    doubt = run_doubts.other_matmul_precision("high", "highest")
    assert doubt is not None
    assert "the code has set highest, so highest was measured" in doubt.message


def test_a_step_that_waits_for_data_is_doubted_with_the_axis_to_try() -> None:
    shares = {"data_wait": 0.6, "forward": 0.2, "backward": 0.2, "communication": 0.0}
    doubt = run_doubts.input_bound(*bottleneck(shares))
    assert doubt is not None
    assert doubt.message.startswith("waiting for data took 60 % of a step")
    assert "loader.num_workers=0,2,4" in doubt.remedy
    assert run_doubts.input_bound(*bottleneck({**shares, "backward": 0.9})) is None
