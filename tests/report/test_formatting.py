"""The exact text of numbers, estimates and shares."""

import pytest

from accelsweep.records.estimates import Estimate, Summary
from accelsweep.records.findings import Recommendation
from accelsweep.report import formatting as fmt
from accelsweep.results import Outcome


def estimate(value, low, high, unit, reason=None):
    return Estimate(value=value, low=low, high=high, unit=unit, confidence=0.95, count=3, reason=reason)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (estimate(2.1, 2.0, 2.2, "x"), "2.1x [2.0, 2.2]"),
        (estimate(12345.0, 12000.0, 12700.0, "1/s"), "12.3k samples/s [12.0k, 12.7k]"),
        (estimate(812.3, 800.1, 822.0, "1/s"), "812 samples/s [800, 822]"),
        (estimate(8639.0, 8571.4, 8707.2, "1/s"), "8,639 samples/s [8,571, 8,708]"),
        (estimate(0.9312, 0.92, 0.941, "val_accuracy"), "0.93 val_accuracy [0.92, 0.95]"),
        (estimate(1.2e-4, 1.1e-4, 1.3e-4, "J"), "120 µJ [110, 130]"),
        (estimate(1.2e-4, 1.1e-4, 1.3e-4, "J/sample"), "120 µJ/sample [110, 130]"),
        (estimate(0.41, 0.40, 0.42, "USD"), "0.41 USD [0.40, 0.42]"),
        (estimate(8000.0, None, None, "1/s", "one repeat"), "8,000 samples/s (no interval: one repeat)"),
        (estimate(8000.0, 900.0, 71000.0, "1/s"), "not known yet"),
        (None, "not measured: out of memory"),
    ],
)
def test_an_estimate_carries_its_interval_and_unit(value, text):
    assert fmt.estimate_text(value, "out of memory") == text


def test_a_share_of_counted_runs_is_shown_however_wide_its_interval():
    assert fmt.counted_text(estimate(0.0, 0.0, 0.616, "of the runs")) == "0.0 of the runs [0.0, 0.7]"
    assert fmt.counted_text(estimate(0.02, 0.0005, 0.107, "of the runs")) == "0.020 of the runs [0.00050, 0.11]"
    assert fmt.counted_text(None, "no run ended") == "not measured: no run ended"


@pytest.mark.parametrize(
    ("minutes", "text"),
    [
        (None, "To settle it"),
        (0.2, "To settle it, about 1 minute"),
        (4.4, "To settle it, about 4 minutes"),
        (130.0, "To settle it, about 2 hours"),
    ],
)
def test_the_time_of_the_advised_command_is_rounded_to_minutes_or_hours(minutes, text):
    advice = Recommendation(choice=None, sentence="x", alternatives=(), settle="y", settle_minutes=minutes)
    assert fmt.next_step(advice) == text


def test_the_advised_command_is_introduced_by_its_purpose_and_its_repeats():
    advice = Recommendation(
        choice=None,
        sentence="x",
        alternatives=(),
        settle="y",
        settle_blocks=3,
        settle_purpose="To confirm its accuracy",
    )
    assert fmt.next_step(advice) == "To confirm its accuracy, 3 more repeats"


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (estimate(12345.0, 12001.0, 12690.0, "1/s"), "12,345 [12,001, 12,690]"),
        (estimate(0.9312, 0.92, 0.941, "val_accuracy"), "0.93 [0.92, 0.95]"),
        (estimate(5.08e10, 5.01e10, 5.15e10, "FLOP/s"), "50.8G [50.1G, 51.5G]"),
        (estimate(5.08e10, None, None, "B/s", "one repeat"), "50.8G"),
        (estimate(8000.0, 900.0, 71000.0, "1/s"), "not known yet"),
        (estimate(10.0, 9.8, 10.2, "results/h"), "10.0 [9.8, 10.2]"),
    ],
)
def test_without_its_unit_an_estimate_keeps_only_large_prefixes(value, text):
    assert fmt.bare_text(value) == text


def test_a_ratio_is_a_factor_whatever_its_unit():
    assert fmt.ratio_text(estimate(2.1, 2.0, 2.2, "1")) == "2.1x [2.0, 2.2]"
    assert fmt.ratio_text(None, "refused") == "not measured: refused"


@pytest.mark.parametrize(
    ("value", "unit", "text"),
    [
        (12300, "1/s", "12.3k samples/s"),
        (3.2e6, "1/s", "3.20M samples/s"),
        (1.5 * 2**30, "B", "1.50 GiB"),
        (512, "bytes", "512 B"),
        (0.0042, "s", "4.20 ms"),
        (0.0000042, "s", "4.20 µs"),
        (0, "s", "0 s"),
        (123456, "J", "123 kJ"),
        (0.0042, "J/sample", "4.20 mJ/sample"),
        (12345, "J/sample", "12.3 kJ/sample"),
        (0.93, "val_accuracy", "0.930 val_accuracy"),
        (0.1234, "USD", "0.123 USD"),
        (-0.5, "s", "-500 ms"),
        (17, "", "17.0"),
    ],
)
def test_a_number_carries_its_unit_and_three_digits(value, unit, text):
    assert fmt.number(value, unit) == text


def test_a_missing_number_is_not_measured_with_the_reason_and_never_zero():
    missing = Summary(median=None, minimum=None, maximum=None, count=0, unit="J", reason="no counter")
    assert fmt.summary(missing) == "not measured: no counter"
    assert fmt.number(None) == "not measured"


@pytest.mark.parametrize(("value", "text"), [(0.02, "2 %"), (0.615, "61.5 %"), (0.0428, "4.28 %"), (1.0, "100 %")])
def test_a_share_is_a_percentage(value, text):
    assert fmt.share(value) == text


def test_counts_and_outcomes_are_prose():
    assert (fmt.count(1, "run"), fmt.count(1000, "run")) == ("1 run", "1,000 runs")
    assert fmt.outcome_words(Outcome.out_of_memory) == "out of memory"
