"""The change-point test: what it must see, and how rarely it may cry wolf."""

from __future__ import annotations

import random

from accelsweep.measure import run_doubts
from accelsweep.measure.run_doubts import level_shift


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


def test_a_shift_too_small_to_matter_is_left_alone():
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


def test_a_threshold_that_sees_a_drift_of_three_percent_would_cry_wolf(monkeypatch):
    """A machine whose pace wanders by 1 % is no reason to doubt a window. At 1 % it is called unsteady too often."""
    rng = random.Random(7)
    walks = [wandering(rng, 0.01) for _ in range(200)]
    assert sum(level_shift(walk) is not None for walk in walks) == 0
    monkeypatch.setattr(run_doubts, "MIN_SHIFT", 0.01)
    assert sum(level_shift(walk) is not None for walk in walks) > 0.05 * len(walks)


def test_too_few_steps_give_no_verdict():
    assert level_shift([1.0] * 29 + [2.0] * 30) is None
