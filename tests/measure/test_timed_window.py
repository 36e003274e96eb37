"""The timed window: its length, what it times, its rates and its losses."""

from __future__ import annotations

import math
import random
from itertools import accumulate
from statistics import fmean

import pytest
import torch

from accelsweep.devices.clock import ClockMarks
from accelsweep.measure.timed_window import (
    COMPACT_EVERY,
    RankWindow,
    StepValues,
    Window,
    WindowRules,
    first_not_finite,
    percentile,
    quantile,
    rate_metrics,
)

RULES = WindowRules(warmup_steps=4, min_steps=10, min_seconds=0.0, max_steps=1000)


class Host:
    """A device without a queue, as a CPU is."""

    def __init__(self, log):
        self.log = log

    def synchronise(self):
        self.log.append("synchronise")

    def marks(self, clock):
        return ClockMarks(clock)


class Recorder:
    def __init__(self, log):
        self.log = log

    def start(self):
        self.log.append("probe starts")

    def stop(self):
        self.log.append("probe stops")


def drive(window, clock, seconds, samples=32):
    """Take steps of `seconds(step)` until the window closes; return how many there were."""
    window.begin()
    step = 0
    while True:
        clock.advance(seconds(step))
        step += 1
        if window.step_done(samples):
            return step


def test_seconds_samples_and_steps_are_exact(clock, group, log):
    window = Window(RULES, device=Host(log), group=group, clock=clock)
    taken = drive(window, clock, lambda step: 0.5 if step == 0 else 0.1)
    seen = window.result()
    assert taken == 14
    assert seen.seconds == pytest.approx(1.0)
    assert seen.samples == 320
    assert seen.first_step_seconds == pytest.approx(0.5)
    assert seen.step_seconds == pytest.approx([0.5] + [0.1] * 13)
    assert seen.window_step_seconds == pytest.approx([0.1] * 10)


def test_the_window_lasts_as_many_steps_as_the_warm_up_says_it_takes(clock, group, log):
    rules = WindowRules(warmup_steps=10, min_steps=1, min_seconds=2.0, max_steps=1000)
    window = Window(rules, device=Host(log), group=group, clock=clock)
    assert drive(window, clock, lambda step: 0.125) == 10 + 18  # 1.1 * 2 s at 0.125 s a step
    assert window.result().seconds == pytest.approx(2.25)


def test_slow_first_steps_do_not_shorten_the_window(clock, group, log):
    rules = WindowRules(warmup_steps=10, min_steps=1, min_seconds=2.0, max_steps=1000)
    window = Window(rules, device=Host(log), group=group, clock=clock)
    assert drive(window, clock, lambda step: 3.0 if step < 5 else 0.125) == 10 + 18


def test_an_outlier_in_the_second_half_of_the_warm_up_does_not_shorten_the_window(clock, group, log):
    rules = WindowRules(warmup_steps=10, min_steps=1, min_seconds=2.0, max_steps=1000)
    window = Window(rules, device=Host(log), group=group, clock=clock)
    assert drive(window, clock, lambda step: 9.0 if step == 8 else 0.125) == 10 + 18


@pytest.mark.parametrize(("pace", "expected"), [(10.0, 10), (1e-6, 1000), (0.0, 1000)])
def test_the_number_of_steps_stays_between_its_bounds(pace, expected):
    rules = WindowRules(warmup_steps=4, min_steps=10, min_seconds=5.0, max_steps=1000)
    assert rules.window_steps([pace] * 4) == expected


def slow(max_seconds, **lengths):
    return WindowRules(
        **{"warmup_steps": 20, "min_steps": 50, "min_seconds": 1.0, "max_steps": 1000, **lengths},
        max_seconds=max_seconds,
    )


@pytest.mark.parametrize(("pace", "warmup", "steps"), [(0.05, 20, 50), (0.1, 20, 30), (0.25, 12, 12), (2.0, 10, 10)])
def test_warm_up_and_window_end_at_max_seconds_but_not_before_they_have_ten_steps(
    clock, group, log, pace, warmup, steps
):
    window = Window(slow(3.0), device=Host(log), group=group, clock=clock)
    assert drive(window, clock, lambda step: pace) == warmup + steps
    seen = window.result()
    assert (seen.warmup_steps, len(seen.step_seconds)) == (warmup, warmup + steps)
    assert seen.window_step_seconds == pytest.approx([pace] * steps)
    assert seen.samples == 32 * steps


def test_a_window_that_needs_fewer_than_ten_steps_is_not_extended_to_ten(clock, group, log):
    window = Window(slow(3.0, warmup_steps=2, min_steps=5), device=Host(log), group=group, clock=clock)
    assert drive(window, clock, lambda step: 2.0) == 2 + 5


def test_slow_steps_in_the_window_do_not_end_it(clock, group, log):
    """Its number of steps is fixed: a window that ended by its own clock would have fewer of the slow steps."""
    window = Window(slow(3.0), device=Host(log), group=group, clock=clock)
    assert drive(window, clock, lambda step: 0.05 if step < 20 else 1.0) == 20 + 50
    assert window.result().seconds == pytest.approx(50.0)


def test_a_short_window_has_the_right_step_time_on_average_unlike_one_that_a_clock_ends():
    """The step that exceeds a time limit is likely to be a long one: here, one in fifty takes ten times as long."""
    rng, rules = random.Random(1), slow(10.0)

    def steps(count):
        return [rng.lognormvariate(0.0, 0.2) * (10.0 if rng.random() < 0.02 else 1.0) for _ in range(count)]

    ours, by_the_clock = [], []
    for _ in range(4000):
        ours.append(fmean(steps(rules.window_steps(steps(rules.least_warmup)))))
        ends = list(accumulate(steps(100)))
        by_the_clock.append(next(end / count for count, end in enumerate(ends, 1) if end >= rules.max_seconds))
    expected = math.exp(0.2**2 / 2) * (0.98 + 0.02 * 10.0)
    assert fmean(ours) == pytest.approx(expected, rel=0.02)
    assert fmean(by_the_clock) > 1.1 * expected


def test_a_first_step_that_compiles_does_not_shorten_the_warm_up(clock, group, log):
    window = Window(slow(3.0), device=Host(log), group=group, clock=clock)
    assert drive(window, clock, lambda step: 60.0 if step == 0 else 0.0625) == 20 + 48


def test_a_shortened_warm_up_and_window_hold_whole_optimiser_steps(clock, group, log):
    window = Window(slow(3.0, multiple_of=4), device=Host(log), group=group, clock=clock)
    assert drive(window, clock, lambda step: 2.0) == 12 + 12


def test_every_rank_ends_its_warm_up_when_rank_0_does(clock, group, log):
    group.rank, group.size, group.told = 1, 2, 17
    window = Window(slow(3.0), device=Host(log), group=group, clock=clock)
    assert drive(window, clock, lambda step: 2.0) == 17 + 17
    assert group.asked == [10, 10]  # its own lengths of warm-up and window, which it does not use
    assert window.result().warmup_steps == 17


def test_every_rank_takes_the_number_that_rank_0_broadcasts(clock, group, log):
    group.rank, group.size, group.told = 1, 2, 17
    window = Window(RULES, device=Host(log), group=group, clock=clock)
    assert drive(window, clock, lambda step: 0.1) == 4 + 17
    assert group.asked == [10]  # its own estimate, asked for once and not used


def test_the_device_is_waited_for_and_the_ranks_meet_before_both_ends_are_read(clock, device, group, log):
    window = Window(RULES, device=device, group=group, clock=clock, probes=[Recorder(log)])
    drive(window, clock, lambda step: 0.1)
    begin, first_step = ["synchronise"], ["synchronise"]
    opening = ["synchronise", "probe starts", "barrier"]
    closing = ["synchronise", "probe stops", "barrier"]
    assert log == begin + first_step + opening + closing


def test_work_still_queued_on_the_device_counts_into_the_window(clock, device, group):
    """The host runs ahead: it queues each step in 1 ms, and the device needs 100 ms for it."""
    window = Window(RULES, device=device, group=group, clock=clock)
    window.begin()
    while True:
        device.work(0.1)
        clock.advance(0.001)
        if window.step_done(32):
            break
    seen = window.result()
    assert seen.seconds == pytest.approx(10 * 0.1, abs=0.002)
    assert sum(seen.window_step_seconds) == pytest.approx(seen.seconds, abs=0.002)


def test_the_device_is_waited_for_before_the_length_of_the_warm_up_is_read(clock, device, group, log):
    """The host queues the first ten steps in 10 ms; the device needs 5 s for them."""
    window = Window(slow(3.0), device=device, group=group, clock=clock)
    window.begin()
    for _ in range(9):
        device.work(0.5)
        clock.advance(0.001)
        window.step_done(32)
    log.clear()
    device.work(0.5)
    window.step_done(32)
    assert log[:2] == ["synchronise", "synchronise"], "for the warm-up's length, and as the window opens"
    assert window.warmup_steps == 10


def test_waiting_for_other_ranks_is_no_part_of_the_window(clock, group, log):
    """A rank that finishes early waits in the closing barrier; its own duration ended before."""
    group.barrier = lambda: clock.advance(5.0)
    window = Window(RULES, device=Host(log), group=group, clock=clock)
    drive(window, clock, lambda step: 0.1)
    assert window.result().seconds == pytest.approx(1.0)


def test_samples_are_counted_as_processed_and_not_as_planned(clock, group, log):
    window = Window(RULES, device=Host(log), group=group, clock=clock)
    window.begin()
    step = 0
    clock.advance(0.1)
    while not window.step_done(32 if step != 7 else 5):
        clock.advance(0.1)
        step += 1
    assert window.result().samples == 9 * 32 + 5


def test_the_window_has_whole_optimiser_steps(clock, group, log):
    rules = WindowRules(warmup_steps=5, min_steps=10, min_seconds=0.0, max_steps=1000, multiple_of=4)
    window = Window(rules, device=Host(log), group=group, clock=clock)
    assert drive(window, clock, lambda step: 0.1) == 8 + 12


def test_progress_is_reported_after_every_step(clock, group, log):
    told = []
    window = Window(RULES, device=Host(log), group=group, clock=clock, progress=told.append)
    drive(window, clock, lambda step: 0.1)
    assert told == list(range(1, 15))


def test_a_window_that_never_closed_has_no_result(clock, group, log):
    window = Window(RULES, device=Host(log), group=group, clock=clock)
    window.begin()
    window.step_done(32)
    with pytest.raises(RuntimeError, match="still open after 1 steps"):
        window.result()


def window(step_seconds, warmup=2):
    return RankWindow(
        began_at=0.0,
        opened_at=sum(step_seconds[:warmup]),
        warmup_steps=warmup,
        first_step_seconds=0.7,
        seconds=sum(step_seconds[warmup:]),
        step_seconds=list(step_seconds),
        step_samples=[32] * len(step_seconds),
        losses=[None] * len(step_seconds),
    )


def test_the_slowest_rank_decides_and_all_ranks_samples_count():
    metrics = rate_metrics(window([1.0] * 12), seconds=[10.0, 12.5], samples=[320, 320])
    assert metrics["samples_per_second"].value == pytest.approx(640 / 12.5)
    assert metrics["step_seconds"].value == pytest.approx(1.25)
    assert metrics["rank_skew_seconds"].value == pytest.approx(2.5)
    assert metrics["window_samples"].value == 640


def test_one_rank_has_a_reason_instead_of_a_skew():
    metric = rate_metrics(window([1.0] * 12), seconds=[10.0], samples=[320])["rank_skew_seconds"]
    assert metric.value is None
    assert "a single rank" in metric.reason


def test_a_99th_percentile_is_withheld_below_the_steps_that_support_it():
    few = rate_metrics(window([0.1] * 1001), seconds=[99.9], samples=[1])["step_seconds_p99"]
    enough = rate_metrics(window([0.1] * 1002), seconds=[100.0], samples=[1])["step_seconds_p99"]
    assert few.value is None
    assert "999 steps" in few.reason
    assert enough.value == pytest.approx(0.1)


@pytest.mark.parametrize(("share", "needed"), [(0.5, 20), (0.9, 100), (0.99, 1000)])
def test_a_percentile_needs_ten_values_beyond_it(share, needed):
    assert percentile([0.2] * needed, share, "queries", "rank 0").value == pytest.approx(0.2)
    few = percentile([0.2] * (needed - 1), share, "queries", "rank 0")
    assert (few.value, f"{needed - 1} queries" in few.reason, str(needed) in few.reason) == (None, True, True)


def test_quantiles_exclude_the_warm_up():
    metrics = rate_metrics(window([50.0, 50.0] + [0.1] * 10), seconds=[1.0], samples=[320])
    assert metrics["step_seconds_p50"].value == pytest.approx(0.1)


@pytest.mark.parametrize(("share", "expected"), [(0.0, 1.0), (0.5, 2.5), (1.0, 4.0), (0.25, 1.75)])
def test_quantiles_interpolate_linearly(share, expected):
    assert quantile([4.0, 1.0, 3.0, 2.0], share) == pytest.approx(expected)


def test_losses_come_back_in_order_across_compactions():
    losses = StepValues()
    count = 2 * COMPACT_EVERY + 3
    for step in range(count):
        losses.add(torch.tensor(float(step)))
    assert losses.values() == [float(step) for step in range(count)]


def test_a_step_without_a_loss_is_none():
    losses = StepValues()
    for loss in (torch.tensor([1.5]), None, torch.tensor(2.5)):
        losses.add(loss)
    assert losses.values() == [1.5, None, 2.5]


def test_bfloat16_losses_are_read_as_numbers():
    losses = StepValues()
    losses.add(torch.tensor(0.5, dtype=torch.bfloat16))
    assert losses.values() == [0.5]


def test_no_step_waits_for_a_loss():
    """A loss on the meta device cannot be read, so keeping it must not try."""
    losses = StepValues()
    for _ in range(COMPACT_EVERY + 1):
        losses.add(torch.empty((), device="meta"))


def test_a_missing_loss_does_not_make_steps_wait_for_the_device():
    losses = StepValues()
    for step in range(COMPACT_EVERY + 1):
        losses.add(None if step % 3 == 0 else torch.empty((), device="meta"))


def test_the_first_nan_or_infinity_is_found():
    assert first_not_finite([1.0, None, math.inf, math.nan]) == 2
    assert first_not_finite([1.0, None, 0.0]) is None
