"""Formats numbers, durations and untrusted text by the same rules in every sentence, table and chart.

A value is shown to the precision that its interval supports. Intervals are rounded outwards, so that a printed interval
is never narrower than the one that determined the verdict.
"""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Mapping
from datetime import timedelta
from decimal import ROUND_CEILING, ROUND_FLOOR, ROUND_HALF_EVEN, Context, Decimal

WIDE_RATIO = 2.0
"""An interval whose ends differ by this factor or more is shown with two digits per end."""

UNINFORMATIVE_RATIO = 20.0
"""An interval whose ends differ by more than this factor is too wide to be worth printing."""

UNKNOWN = "not known yet"
"""Shown instead of a value whose interval is uninformative; the interval's ends are still written to files."""

_ANY_FLOAT = Context(prec=400)
"""A Decimal precision that fits any float: Decimal rejects numbers with more digits than its precision."""


def significant(value: float, digits: int = 3) -> str:
    """Return `value` with this many significant digits, never rounding the integer part: `0.0042`, `1.50`, `18,020`."""
    if value == 0:
        return "0"
    return fixed(value, min(max(0, digits - 1 - _magnitude(value)), 12), ROUND_HALF_EVEN)


def interval_digits(value: float, low: float, high: float, extra: int = 0) -> tuple[str, str, str]:
    """Return value, low and high with the same number of decimals: (`2.1`, `2.0`, `2.2`). Ends are rounded outwards.

    Ends that differ by a factor of `WIDE_RATIO` or more get two digits each, so that a small lower end does not become
    0. `extra` decimals are shown beyond those that the interval supports.
    """
    roundings = (ROUND_HALF_EVEN, ROUND_FLOOR, ROUND_CEILING)
    if low > 0 and high / low >= WIDE_RATIO:
        decimals = [min(12, max(0, 1 + extra - _magnitude(number))) for number in (value, low, high)]
    else:
        width = high - low
        if width <= 0:  # integer counts need no decimals
            needed = 0 if value >= 10 and float(value).is_integer() else max(0, 3 - _magnitude(value))
        else:  # show at least one digit of half the width; rounded because 2.3 - 2.1 < 0.2 in floating point
            needed = min(6, max(0, math.ceil(round(-math.log10(width / 2), 9))))
        decimals = [needed + extra] * 3
    middle, left, right = map(fixed, (value, low, high), decimals, roundings)
    return middle, left, right


def common_digits(intervals: Collection[tuple[float, float, float]], *, ratios: bool = False) -> int:
    """Return how many significant digits all values and ends of a column get: what its narrowest interval supports.

    There are 2 to 5 digits. `intervals` contains value, low and high of each row. A column of ratios gets up to four
    more if an end of one would otherwise round to 1.
    """
    needed = [
        math.ceil(round(-math.log10((high - low) / 2), 9)) + 1 + _magnitude(value)
        for value, low, high in intervals
        if high > low
    ]
    least = min(5, max([2, *needed]))
    for digits in range(least, least + 5 if ratios else least):
        rounded = [(low, high, *rounded_interval(value, low, high, digits)) for value, low, high in intervals]
        if not any(low > 1 >= _parse(left) or high < 1 <= _parse(right) for low, high, _, left, right in rounded):
            return digits
    return least


def rounded_interval(value: float, low: float, high: float, digits: int) -> tuple[str, str, str]:
    """Return value, low and high with this many significant digits each; ends are rounded outwards."""
    return (
        rounded(value, digits),
        rounded(low, digits, ROUND_FLOOR),
        rounded(high, digits, ROUND_CEILING),
    )


def rounded(value: float, digits: int, rounding: str = ROUND_HALF_EVEN) -> str:
    """Return `value` with this many significant digits, also in its integer part: `13,600`, `0.79`."""
    decimals = min(digits - 1 - _magnitude(value), 12)
    text = fixed(value, decimals, rounding)
    return fixed(value, decimals - 1, rounding) if _magnitude(_parse(text)) > _magnitude(value) else text  # 0.996: 1.0


def is_uninformative(low: float, high: float) -> bool:
    """Return whether the ends of an interval differ by more than a factor of `UNINFORMATIVE_RATIO`."""
    return high > UNINFORMATIVE_RATIO * low >= 0


def ratio_digits(value: float, low: float, high: float) -> tuple[str, str, str]:
    """Return value, low and high of a ratio, with up to four more digits if an end would otherwise round to 1.

    That end determines the verdict, so 1.03 must not appear as 1.0. Ratios below 10 have at least one decimal: 2x to 5x
    would be much wider than 2.2x to 4.3x.
    """
    for extra in range(5):
        middle, left, right = interval_digits(value, low, high, extra)
        coarse = low < 10 and "." not in left
        if not (coarse or low > 1 >= _parse(left) or high < 1 <= _parse(right)):
            return middle, left, right
    return interval_digits(value, low, high)


def format_ratio(value: float, low: float | None, high: float | None) -> str:
    """Return a ratio as `2.1x [2.0, 2.2]` or `2.10x (no interval)`, or as `ratio_bound` does."""
    if low is None or high is None:
        return f"{significant(value)}x (no interval)"
    if is_uninformative(low, high):
        return ratio_bound(value, low, high)
    middle, left, right = ratio_digits(value, low, high)
    return f"{middle}x [{left}, {right}]"


def ratio_bound(value: float, low: float, high: float) -> str:
    """Return what a ratio's uninformative interval still supports: `below 0.50x`, `above 2.1x` or `not known yet`."""
    _, left, right = ratio_digits(value, low, high)
    return f"below {right}x" if high < 1 else f"above {left}x" if low > 1 else UNKNOWN


def fixed(value: float, decimals: int, rounding: str) -> str:
    """Return `value` with this many decimals and thousands separators; `rounding` is one of decimal's modes."""
    # Round to 12 digits first, so that a ceiling does not round up 2.1000000000000001.
    exact = Decimal(repr(float(f"{value:.12g}")))
    return f"{exact.quantize(Decimal(1).scaleb(-decimals), rounding=rounding, context=_ANY_FLOAT):,f}"


def _parse(digits: str) -> float:
    return float(digits.replace(",", ""))


def _magnitude(value: float) -> int:
    return math.floor(math.log10(abs(value))) if value else 0


def count_of(number: int, noun: str) -> str:
    """Return `1 run` or `3 runs`."""
    return f"{number} {noun}{'' if number == 1 else 's'}"


def percent_of(share: float, total: str) -> str:
    """Return a share as an integer percentage: `12 % of the machine`, `less than 1 % of the machine`."""
    return f"{round(100 * share) or 'less than 1'} % of the {total}"


def gib(size: float, decimals: int = 0) -> str:
    """Return a number of bytes as `24 GiB`, or `23.5 GiB` with `decimals=1`."""
    return f"{size / 2**30:.{decimals}f} GiB"


# Durations.

SECONDS_PER_HOUR = 3600.0


def format_duration(seconds: float) -> str:
    """Return a duration to the second: `0:01:30`, `1 day, 2:00:00`."""
    return str(timedelta(seconds=round(seconds)))


def approximate_duration(seconds: float) -> str:
    """Return an estimated duration: `20 seconds`, `3 minutes`, `5 hours`, `2 days`."""
    for size, noun in ((86400, "day"), (3600, "hour"), (60, "minute")):
        if seconds > 1.5 * size:
            return count_of(round(seconds / size), noun)
    return count_of(max(10, 10 * math.ceil(seconds / 10)), "second")


def parse_duration(text: str, units: Mapping[str, float]) -> float | None:
    """Parse a duration like `90m`; None if invalid. `units` maps each suffix to its size; "" stands for no suffix."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([a-z]?)", text.strip())
    return float(match[1]) * units[match[2]] if match is not None and match[2] in units else None


# Configs, labels and reasons are untrusted, and terminals interpret control characters.

_UNSAFE = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")
"""Control characters except tab and newline, bidirectional marks, and surrogates."""


def escaped(text: str) -> str:
    """Return `text` with control and unprintable characters replaced by Python escapes."""
    return _UNSAFE.sub(lambda match: match[0].encode("unicode_escape").decode(), text)
