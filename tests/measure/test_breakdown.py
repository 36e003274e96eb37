"""The probe pass: which phase time belongs to, with a fake clock."""

from dataclasses import replace

import pytest

from accelsweep.devices.cpu import CpuDevice
from accelsweep.measure.breakdown import (
    SETTLING_STEPS,
    PassHalf,
    PhaseTimer,
    ProbePass,
    breakdown_metrics,
    breakdown_of,
    idle_reason,
    seconds_by_part,
)
from accelsweep.measure.stalls import RankStalls
from accelsweep.results import PARTS


def half(behind=None, **seconds):
    return PassHalf({part: seconds.get(part, 0.0) for part in PARTS}, behind)


def test_every_second_belongs_to_the_innermost_open_phase_and_the_rest_is_overhead(clock):
    timer = PhaseTimer(CpuDevice(), clock)
    timer.begin()
    clock.advance(1)
    timer.enter("optimizer")
    clock.advance(2)
    timer.around("backward", clock.advance)(4)
    clock.advance(8)
    timer.leave()
    clock.advance(16)
    timer.step_done()
    assert timer.end().seconds == half(overhead=17.0, optimizer=10.0, backward=4.0).seconds


def test_fetching_is_data_wait_and_what_is_done_with_a_batch_is_not(clock):
    def batches():
        for number in range(3):
            clock.advance(2)
            yield number

    timer = PhaseTimer(CpuDevice(), clock)
    timer.begin()
    for number in timer.fetching(batches()):
        assert number in range(3)
        clock.advance(5)
        timer.step_done()
    assert timer.end().seconds == half(data_wait=2.0, overhead=5.0).seconds


def test_on_an_asynchronous_device_a_wait_counts_only_once_the_device_is_idle(clock, device):
    """The host waits 3 s for data while 2 s of work are queued: the device misses 1 s."""
    timer = PhaseTimer(device, clock)
    timer.begin()
    for _ in range(4):
        timer.around("data_wait", clock.advance)(3)
        timer.around("forward", device.work)(2)
        timer.step_done()
    found = timer.end()
    assert found.seconds["forward"] == pytest.approx(2.0)
    assert found.seconds["data_wait"] == pytest.approx((3 + 1 + 1 + 1) / 4)
    assert found.behind == 0.0


def test_a_device_with_a_queue_is_behind_and_one_that_waits_for_launches_is_not(clock, device):
    def behind(launch, work):
        timer = PhaseTimer(device, clock)
        timer.begin()
        for _ in range(10):
            clock.advance(launch)
            device.work(work)
            timer.step_done()
        return timer.end().behind

    assert behind(launch=1, work=5) == 1.0
    assert behind(launch=5, work=1) == 0.0


def drive(clock, listener, timer, exchange):
    """Train with 2 s of forward and 3 s of backward, which the exchange makes longer; return the number of steps."""
    listener.begin()
    steps = 0
    while True:
        timer.around("forward", clock.advance)(2)
        timer.around("backward", clock.advance)(3 + exchange())
        steps += 1
        if listener.step_done(8, None):
            return steps


def test_one_rank_needs_one_half_and_settling_steps_do_not_count(clock):
    timer = PhaseTimer(CpuDevice(), clock)
    listener = ProbePass(timer, 5)
    costs = iter([1000] * SETTLING_STEPS + [0] * 5)
    assert drive(clock, listener, timer, lambda: next(costs)) == SETTLING_STEPS + 5
    found = breakdown_of([listener.halves], 5)
    assert found.shares["backward"] == pytest.approx(3 / 5)
    assert found.shares["communication"] == 0.0
    assert found.step_seconds == pytest.approx(5.0)


def test_time_saved_without_the_exchange_is_communication(clock):
    timer, exchanging = PhaseTimer(CpuDevice(), clock), [True]

    def stop():
        exchanging.clear()
        return True

    listener = ProbePass(timer, 5, stop)
    steps = drive(clock, listener, timer, lambda: 10 if exchanging else 0)
    assert steps == 2 * (SETTLING_STEPS + 5)
    found = breakdown_of([listener.halves, listener.halves], 5)
    assert found.shares["communication"] == pytest.approx(10 / 15)
    assert found.shares["backward"] == pytest.approx(3 / 15)
    assert found.verdict == "communication-bound and compute-bound"


def test_communication_is_unknown_if_the_strategy_always_exchanges(clock):
    timer = PhaseTimer(CpuDevice(), clock)
    listener = ProbePass(timer, 5, lambda: False)
    assert drive(clock, listener, timer, lambda: 10) == SETTLING_STEPS + 5
    found = breakdown_of([listener.halves] * 2, 5)
    assert "communication" not in found.shares
    assert sum(found.shares.values()) == pytest.approx(1.0)
    metrics = breakdown_metrics(found)
    assert metrics["communication_share"].value is None
    assert "strategy" in metrics["communication_share"].reason


def test_communication_is_zero_if_training_without_exchange_is_no_faster():
    assert seconds_by_part([half(backward=1.0), half(backward=1.5)]) == half(backward=1.0).seconds


def test_a_pass_in_which_all_processes_were_idle_is_withheld():
    still, busy = RankStalls(30.0, 1, idle=True), RankStalls(30.0, 1, idle=False)
    calm = half(forward=1.0)
    stopped, worked = (replace(calm, stalls=stalls, total_seconds=31.0) for stalls in (still, busy))
    assert idle_reason([[calm, stopped], [calm, stopped]]) == (
        "withheld: all processes were idle for 30 s of the 31 s of the probe pass"
    )
    for ranks in ([[calm, calm]], [[worked]], [[stopped], [worked]], [[stopped], [calm]]):
        assert idle_reason(ranks) is None


def test_ranks_count_alike():
    found = breakdown_of([[half(forward=3.0), half(forward=3.0)], [half(backward=3.0), half(backward=1.0)]], 9)
    assert found.step_seconds == pytest.approx(3.0)
    assert found.shares["communication"] == pytest.approx(1 / 3)
    assert found.shares["forward"] == pytest.approx(1 / 2)


def test_without_a_pass_every_share_has_the_reason():
    metrics = breakdown_metrics("not asked for")
    assert {metric.reason for metric in metrics.values()} == {"not asked for"}
    assert {f"{part}_share" for part in PARTS} < set(metrics)
