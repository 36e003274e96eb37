"""Break-even by the month: straight bills cross where arithmetic says, and a ratio's interval becomes one of hours."""

from accelsweep.config.prices import Bill
from accelsweep.features.projection.project import break_even, rent_or_buy
from accelsweep.records.estimates import Range

HERE = Bill(0.0, 0.5, "0.5 USD/h")
CARD = Bill(100.0, 0.1, "bought for 3600 USD, kept 3 years", 3600.0)
TEN = Range(value=10, low=5, high=20)


def test_a_card_pays_from_the_hours_where_the_bills_cross():
    """100 USD a month and 0.1 / 10 USD for an hour's work, against 0.5: from 100 / 0.49 = 204 hours on."""
    found = break_even(HERE, CARD, "L4", TEN)
    assert found.startswith("from about 200 (200 to 210) hours of training a month here, L4 (bought for 3600 USD")
    assert "is projected cheaper than this machine (0.5 USD/h)" in found


def test_renting_pays_up_to_the_hours_where_a_bought_machine_is_used_enough():
    """0.8 USD/h at 2x is 0.4 USD for an hour's work, against 100 USD a month and 0.1: up to 100 / 0.3 = 333 hours."""
    rented = Bill(0.0, 0.8, "0.8 USD/h")
    found = break_even(CARD, rented, "L4", Range(value=2, low=1.6, high=2.4))
    assert found.startswith("up to about 330 (250 to 430) hours of training a month here")


def test_two_prices_by_the_hour_never_cross():
    rented = Bill(0.0, 0.8, "0.8 USD/h")
    assert break_even(HERE, rented, "L4", TEN).startswith(
        "at any number of hours a month, L4 (0.8 USD/h) is projected ch"
    )
    slow = Range(value=1, low=0.8, high=1.2)
    assert "is projected dearer than this machine" in break_even(HERE, rented, "L4", slow)


def test_ends_that_disagree_are_not_told():
    """At 1.6x an hour's work costs what it costs here; the interval has both sides of it."""
    rented = Bill(0.0, 0.8, "0.8 USD/h")
    assert "cannot be told" in break_even(HERE, rented, "L4", Range(value=1.7, low=1.0, high=3.0))


def test_what_pays_only_beyond_a_months_hours_never_pays():
    dear = Bill(1000.0, 0.1, "bought for 36000 USD, kept 3 years", 36000.0)
    assert "is projected dearer" in break_even(HERE, dear, "H100", TEN)


def test_buying_against_renting_the_same_card_needs_no_rate():
    """100 USD a month and 0.1 USD/h, against 0.6 USD/h: from 200 hours on."""
    rented = Bill(0.0, 0.6, "0.6 USD/h")
    assert rent_or_buy(rented, CARD, "L4").startswith("from 200 hours a month on it, buying L4 (bought for 3600 USD")
    assert rent_or_buy(Bill(0.0, 0.05, "0.05 USD/h"), CARD, "L4").startswith(
        "at any number of hours a month, renting L4"
    )
