"""From how many hours of training a month one way to pay is cheaper than another: bills are straight lines.

A bill has USD a month that are paid in any case, and USD for each hour of work. Hours are those of this machine: a
device of twice its rate needs half of them for the same work.
"""

from __future__ import annotations

from typing import NamedTuple

from accelsweep.config.prices import Bill
from accelsweep.records.estimates import Range, shortened

MONTH = 730.5
"""Hours of a month: 8766 / 12. Nothing trains longer in one."""


def break_even(here: Bill, there: Bill, name: str, ratio: Range) -> str:
    """Return how the bill of the device `name` compares with this machine's, which has 1 / `ratio` of its rate."""
    middle, low, high = (_crossing(here, there, end) for end in (ratio.value, ratio.low, ratio.high))
    what = f"{name} ({there.words}) is projected cheaper than this machine ({here.words})"
    if not middle.sign == low.sign == high.sign:
        return f"whether {name} ({there.words}) is cheaper than this machine ({here.words}) cannot be told"
    if middle.hours is None or low.hours is None or high.hours is None:
        return f"at any number of hours a month, {what if middle.sign < 0 else _dearer(what)}"
    ends = sorted((low.hours, high.hours))
    if ends[0] > MONTH:
        early = middle.sign > 0
        return f"at any number of hours a month, {what if early else _dearer(what)}"
    words = (
        f"about {shortened(middle.hours)} ({shortened(ends[0])} to {shortened(ends[1])}) hours of training a month here"
    )
    return f"{'up to' if middle.sign > 0 else 'from'} {words}, {what}"


def rent_or_buy(rented: Bill, bought: Bill, name: str) -> str:
    """Return from how many hours a month a device is cheaper bought than rented: prices alone tell."""
    found = _crossing(rented, bought, 1.0)
    if found.hours is None or found.hours > MONTH:
        renting = f"renting {name} ({rented.words})"
        return f"at any number of hours a month, {renting} is cheaper than buying it ({bought.words})"
    buying = f"buying {name} ({bought.words})"
    return f"from {shortened(found.hours)} hours a month on it, {buying} is cheaper than renting it ({rented.words})"


class _Crossing(NamedTuple):
    """The crossing of two bills: `hours`, None if nowhere. `sign` is -1 if the other device is cheaper beyond it."""

    hours: float | None
    sign: int


def _crossing(here: Bill, there: Bill, ratio: float) -> _Crossing:
    offset = there.usd_per_month - here.usd_per_month
    slope = there.usd_per_hour / ratio - here.usd_per_hour
    sign = -1 if slope < 0 or (slope == 0 and offset < 0) else 1
    crosses = slope != 0 and -offset / slope > 0
    return _Crossing(-offset / slope if crosses else None, sign)


def _dearer(what: str) -> str:
    return what.replace("is projected cheaper", "is projected dearer")
