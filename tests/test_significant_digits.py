"""Values, intervals and ratios are shown with the digits that they support."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from accelsweep.significant_digits import (
    common_digits,
    format_ratio,
    gib,
    interval_digits,
    rounded_interval,
    significant,
)


@pytest.mark.parametrize(
    ("value", "low", "high", "words"),
    [
        (2.1, 2.0, 2.2, "2.1x [2.0, 2.2]"),
        (2.2, 2.1, 2.3, "2.2x [2.1, 2.3]"),
        (1.44, 1.38, 1.49, "1.44x [1.38, 1.49]"),
        (1.80014, 1.77956, 1.82097, "1.80x [1.77, 1.83]"),
        (1.0, 1.0, 1.0, "1.000x [1.000, 1.000]"),
        (12.0, 8.0, 18.0, "12x [8.0, 18]"),
        (4.1, 0.0213, 66523.7, "not known yet"),
        (4.1, 0.0, 3.0, "not known yet"),
        (31.0, 2.9, 327.0, "above 2.9x"),
        (0.11, 0.0246, 0.4924, "below 0.50x"),
        (1.5, 0.32, 6.4, "1.5x [0.32, 6.4]"),
        (2.23, 1.22, 4.08, "2.2x [1.2, 4.1]"),
        (1.4, 1.02, 1.9, "1.40x [1.02, 1.90]"),
        (0.7, 0.5, 0.997, "0.700x [0.500, 0.997]"),
        (1.6, 1.02, 2.4, "1.60x [1.02, 2.40]"),
        (1.2, 1.000000001, 1.4, "1.2x [1.0, 1.4]"),
        (2.1, None, None, "2.10x (no interval)"),
    ],
)
def test_a_ratio_is_shown_to_the_digit_that_its_interval_supports(value, low, high, words):
    assert format_ratio(value, low, high) == words


@pytest.mark.parametrize(
    ("intervals", "ratios", "digits"),
    [
        ([(13_600, 11_600, 16_100), (11_100, 10_700, 11_500)], False, 3),
        ([(2.1, 1.7, 2.6), (0.79, 0.62, 0.99)], True, 2),
        ([(1.4, 1.02, 1.9)], False, 2),
        ([(1.4, 1.02, 1.9)], True, 3),
        ([(1.0, 0.999_999, 1.000_001)], False, 5),
        ([], False, 2),
    ],
)
def test_a_column_has_the_digits_that_its_narrowest_interval_supports(intervals, ratios, digits):
    assert common_digits(intervals, ratios=ratios) == digits


def test_digits_are_significant_in_the_integer_part_too_and_ends_are_rounded_outwards():
    assert rounded_interval(13_612, 11_641, 16_013, 3) == ("13,600", "11,600", "16,100")
    assert rounded_interval(0.7912, 0.6251, 0.9912, 2) == ("0.79", "0.62", "1.0")


def test_numbers_of_any_magnitude_can_be_formatted():
    assert interval_digits(1e30, 1e-18, 1e300)[2].startswith("1")
    assert interval_digits(1e30, -1e30, 1e30)[1] == "-1,000,000,000,000,000,000,000,000,000,000"


@given(st.floats(0.01, 100), st.floats(0, 0.5), st.floats(0, 0.5))
def test_a_printed_interval_is_never_narrower_than_the_real_one(value, below, above):
    low, high = float(f"{value - below:.6g}"), float(f"{value + above:.6g}")
    _, left, right = interval_digits(value, low, high)
    # No more than six decimals are shown, so an interval may look narrower by less than that.
    assert float(left) <= low + 1e-6
    assert float(right) >= high - 1e-6


@pytest.mark.parametrize(
    ("value", "words"), [(0, "0"), (0.0042, "0.00420"), (1.5, "1.50"), (18020.4, "18,020"), (-0.5, "-0.500")]
)
def test_significant_digits_never_round_before_the_point(value, words):
    assert significant(value) == words


def test_bytes_are_shown_in_gibibytes():
    assert (gib(24 * 2**30), gib(23.46 * 2**30, 1)) == ("24 GiB", "23.5 GiB")
