"""From ranks' windows to the run's rate, exactly."""

from __future__ import annotations

import pytest

from accelsweep.measure.window import RankWindow, percentile, quantile, rate_metrics


def window(step_seconds, warmup=2):
    return RankWindow(
        began_at=0.0,
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
    assert "one rank" in metric.reason


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


def test_warm_up_is_no_part_of_the_quantiles():
    metrics = rate_metrics(window([50.0, 50.0] + [0.1] * 10), seconds=[1.0], samples=[320])
    assert metrics["step_seconds_p50"].value == pytest.approx(0.1)


@pytest.mark.parametrize(("share", "expected"), [(0.0, 1.0), (0.5, 2.5), (1.0, 4.0), (0.25, 1.75)])
def test_quantiles_interpolate_linearly(share, expected):
    assert quantile([4.0, 1.0, 3.0, 2.0], share) == pytest.approx(expected)
