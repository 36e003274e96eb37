"""Intervals agree with scipy and lead to the verdicts that the threshold asks for."""

from __future__ import annotations

import math
import random

import pytest
from scipy import stats

from accelsweep.analysis.intervals import (
    Family,
    Interval,
    exponential_estimate,
    is_paired,
    linear_estimate,
    log_ratio,
    paired_interval,
    pooled_noise,
    round_significant,
    t_interval,
    verdict,
    welch_interval,
)
from accelsweep.records.estimates import Estimate, Verdict

A = {"b0": 1.0, "b1": 1.2, "b2": 0.9, "b3": 1.1}
B = {"b0": 0.7, "b1": 0.8, "b2": 0.75, "b3": 0.6}


def _ends(interval: Interval) -> tuple[float | None, float | None]:
    return interval.low, interval.high


def test_the_paired_interval_is_scipys() -> None:
    expected = stats.ttest_rel(list(A.values()), list(B.values())).confidence_interval(0.95)
    assert _ends(paired_interval(A, B, Family())) == pytest.approx(tuple(expected))


def test_pairs_are_made_by_block_not_by_order() -> None:
    reordered = {key: B[key] for key in reversed(B)}
    assert paired_interval(A, reordered, Family()) == paired_interval(A, B, Family())


def test_only_shared_blocks_pair() -> None:
    assert paired_interval(A | {"b9": 100.0}, B, Family()) == paired_interval(A, B, Family())


def test_welchs_interval_is_scipys() -> None:
    a, b = [1.0, 1.2, 0.9, 1.1, 1.4], [0.7, 0.71, 0.69]
    expected = stats.ttest_ind(a, b, equal_var=False).confidence_interval(0.99)
    assert _ends(welch_interval(a, b, Family(1, 0.99))) == pytest.approx(tuple(expected))


def test_a_family_widens_each_interval_by_bonferroni() -> None:
    wide = t_interval(list(A.values()), Family(10, 0.95))
    assert wide == t_interval(list(A.values()), Family(1, 0.995))


def test_three_shared_blocks_pair_and_two_do_not() -> None:
    three, two = dict(list(B.items())[:3]), dict(list(B.items())[:2])
    assert (is_paired(A, three), is_paired(A, two)) == (True, False)
    assert log_ratio(A, three, Family()) == paired_interval(A, three, Family())
    assert log_ratio(A, two, Family()) == welch_interval(list(A.values()), list(two.values()), Family())


def test_one_repeat_has_a_value_and_no_interval() -> None:
    interval = t_interval([0.5], Family())
    assert (interval.center, interval.low, interval.count) == (0.5, None, 1)
    assert interval.reason is not None
    assert "at least 2" in interval.reason


def test_one_repeat_on_one_side_gives_no_interval_of_the_ratio() -> None:
    interval = log_ratio(A, {"b0": 0.7}, Family())
    assert interval.half_width is None
    assert interval.center == pytest.approx(1.05 - 0.7)


def test_no_repeat_is_an_error_and_not_a_number() -> None:
    with pytest.raises(ZeroDivisionError):
        t_interval([], Family())


@pytest.mark.parametrize("value", [0.0, 7.25, 1e9])
def test_identical_values_give_no_interval_rather_than_one_of_width_zero(value: float) -> None:
    for interval in (t_interval([value] * 5, Family()), welch_interval([value] * 3, [value] * 3, Family())):
        assert interval.half_width is None
        assert interval.reason is not None
        assert "identical" in interval.reason


def test_the_order_of_the_values_changes_no_digit() -> None:
    generator = random.Random(1)
    values = [generator.lognormvariate(0, 5) for _ in range(50)]
    shuffled = generator.sample(values, len(values))
    assert t_interval(values, Family()) == t_interval(shuffled, Family())
    assert welch_interval(values, shuffled[:9], Family()) == welch_interval(shuffled, shuffled[:9][::-1], Family())


def test_logarithms_come_back_as_ratios_and_numbers_are_rounded_to_six_digits() -> None:
    estimate = exponential_estimate(Interval(math.log(2.0), math.log(1.5), 4), "1", Family(), scale=3.0)
    assert (estimate.value, estimate.low, estimate.high) == (6.0, 4.0, 9.0)
    assert linear_estimate(Interval(1 / 3, None, 1, "why"), "x", Family(3)).value == 0.333333
    assert round_significant(123456789.0) == 123457000.0


@pytest.mark.parametrize(
    ("low", "high", "expected"),
    [
        (1.021, 1.5, Verdict.faster),
        (1.02, 1.5, Verdict.undecided),
        (0.5, 0.98, Verdict.slower),
        (0.5, 0.981, Verdict.undecided),
        (0.9804, 1.02, Verdict.same),
        (0.98, 1.02, Verdict.undecided),
        (0.9804, 1.0201, Verdict.undecided),
        (0.5, 2.0, Verdict.undecided),
    ],
)
def test_the_verdict_is_what_the_interval_supports(low: float, high: float, expected: Verdict) -> None:
    ratio = Estimate(value=1.0, low=low, high=high, unit="1", confidence=0.95, count=5)
    assert verdict(ratio, 0.02)[0] is expected


def test_without_an_interval_the_verdict_is_undecided_and_says_why() -> None:
    ratio = Estimate(value=5.0, low=None, high=None, unit="1", confidence=0.95, count=1, reason="one repeat")
    assert verdict(ratio, 0.02) == (Verdict.undecided, "no interval: one repeat")


def test_the_pooled_noise_is_that_of_one_run_without_the_blocks() -> None:
    generator = random.Random(2)
    settings: list[dict[str, float]] = [{} for _ in range(6)]
    for block in range(200):
        common = generator.gauss(0, 0.5)
        for setting in settings:
            setting[f"b{block}"] = common + generator.gauss(0, 0.01)
    assert pooled_noise([(setting, settings[0]) for setting in settings[1:]]) == pytest.approx(0.01, rel=0.1)
    assert pooled_noise([(A, {"b0": 1.0})]) is None


def test_an_interval_beyond_every_float_has_ends_that_json_can_hold() -> None:
    """Two runs of a machine that others use may lie so far apart that their interval is beyond all bounds."""
    estimate = exponential_estimate(Interval(7.0, 900.0, 2), "1", Family(1, 0.95), 1e3)
    assert estimate.low is not None
    assert estimate.high is not None
    assert 0.0 <= estimate.low < estimate.high < math.inf
