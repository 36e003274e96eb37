"""Each doubt fires when it should, and keeps quiet otherwise."""

from __future__ import annotations

import pytest

from accelsweep.measure import run_doubts
from accelsweep.measure.machine_state import foreign_cores
from accelsweep.run_environment import MachineState


def test_a_window_much_shorter_than_asked_is_doubted():
    assert run_doubts.short_window(0.7, 1.0).code == "short_window"
    assert run_doubts.short_window(0.9, 1.0) is None


def test_others_on_the_processor_are_doubted_only_where_they_can_have_taken_time_from_us(monkeypatch):
    monkeypatch.setattr(run_doubts, "allowed_cores", lambda: set(range(4)))
    assert run_doubts.busy_cpu(1.0, 3.0).code == "busy_cpu"
    assert run_doubts.busy_cpu(1.0, 1.0) is None, "two cores were idle"
    assert run_doubts.busy_cpu(0.05, 3.95) is None, "what an idle system does by itself"
    assert run_doubts.busy_cpu(None, 3.0) is None, "not known is not busy"


def test_foreign_cores_are_the_busy_time_of_our_cores_less_ours():
    ranks = [{"seconds": 10.0, "ours": 9.0, "busy": 25.0}, {"seconds": 10.0, "ours": 8.0, "busy": 25.0}]
    assert foreign_cores(ranks) == (25.0 - 17.0) / 10.0


def test_a_machine_that_shows_less_than_we_used_tells_nothing():
    assert foreign_cores([{"seconds": 10.0, "ours": 9.0, "busy": 0.0}]) is None
    assert foreign_cores([{}]) is None


def test_swapping_and_epoch_boundaries_are_doubted():
    assert run_doubts.swapping(100 * 2**20).code == "swap"
    assert run_doubts.swapping(2**20) is None
    assert run_doubts.epoch_boundary(2).code == "epoch_boundary"
    assert run_doubts.epoch_boundary(0) is None


def test_waiting_for_pages_from_disk_is_doubted_by_its_rate():
    doubt = run_doubts.page_faults(40.0, 2.0)
    assert (doubt.code, "40 pages" in doubt.message, "20 a second" in doubt.message) == ("page_faults", True, True)
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


def test_a_device_that_was_throttled_as_the_window_opened_is_doubted_though_it_is_calm_at_the_end():
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
def test_what_held_a_device_back_between_the_readings_is_told_by_the_drivers_counters(first, last, words):
    calm = {"name": "GPU", "throttles": []}
    states = [devices({**calm, "held_back": {"heat": counted, "power cap": None}}) for counted in (first, last)]
    found = run_doubts.device_doubts(*states)
    assert [words in doubt.message for doubt in found] == ([] if words is None else [True])


@pytest.mark.parametrize("name", ["powersave", "schedutil", "ondemand"])
def test_clocks_that_follow_the_load_are_doubted_with_what_to_do(name):
    doubt = run_doubts.governor(name)
    assert (doubt.code, name in doubt.message) == ("cpu_governor", True)
    assert "cpupower frequency-set --governor performance" in doubt.remedy


@pytest.mark.parametrize("name", ["performance", None])
def test_fixed_or_unknown_clocks_are_no_doubt(name):
    assert run_doubts.governor(name) is None


def test_what_a_device_does_not_tell_is_no_doubt():
    assert run_doubts.device_doubts(*states(throttles=None, celsius=None, foreign_processes=None)) == []
    assert run_doubts.device_doubts(devices({"reason": "NVML: absent"}), devices({"reason": "NVML: absent"})) == []
    assert run_doubts.device_doubts(MachineState(), MachineState()) == []
