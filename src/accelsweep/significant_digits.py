"""The digits of displayed numbers: one rule for every sentence, table and chart.

A value is shown to the digit that its interval supports. An interval is rounded outwards. So the printed interval is
never narrower than the one that decided the verdict.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from datetime import timedelta
from decimal import ROUND_CEILING, ROUND_FLOOR, ROUND_HALF_EVEN, Context, Decimal

WIDE_RATIO = 2.0
"""An interval is read as orders of magnitude from this ratio of its ends on."""

FAR = 20.0
"""An interval whose ends lie further apart than this tells nothing that a sentence could use."""

UNKNOWN = "not known yet"
"""The words in place of a value with such an interval; the files keep its ends."""

_ANY_FLOAT = Context(prec=400)
"""More digits than the largest float has before and behind the point: Decimal refuses numbers beyond its precision."""


def significant(value: float, digits: int = 3) -> str:
    """Return `value` to this many significant digits, never rounding before the point: `0.0042`, `1.50`, `18,020`."""
    if value == 0:
        return "0"
    decimals = max(0, digits - 1 - _magnitude(value))
    return fixed(value, min(decimals, 12), ROUND_HALF_EVEN)


def interval_digits(value: float, low: float, high: float, more: int = 0) -> tuple[str, str, str]:
    """Return value, low and high with equally many decimals: (`2.1`, `2.0`, `2.2`). The ends are rounded outwards.

    Ends that lie a factor of `WIDE_RATIO` or more apart get two digits each. So a small lower end does not become 0.
    Each number has so many digits `more` than its interval asks for.
    """
    if low > 0 and high / low >= WIDE_RATIO:
        ends = ((value, ROUND_HALF_EVEN), (low, ROUND_FLOOR), (high, ROUND_CEILING))
        middle, left, right = (
            fixed(end, min(12, max(0, 1 + more - _magnitude(end))), rounding) for end, rounding in ends
        )
        return middle, left, right
    width = high - low
    if width <= 0:  # counts are whole
        decimals = 0 if value >= 10 and float(value).is_integer() else max(0, 3 - _magnitude(value))
    else:  # at least one digit of half the width; rounded, because 2.3 - 2.1 is a little less than 0.2
        decimals = min(6, max(0, math.ceil(round(-math.log10(width / 2), 9))))
    decimals += more
    return (
        fixed(value, decimals, ROUND_HALF_EVEN),
        fixed(low, decimals, ROUND_FLOOR),
        fixed(high, decimals, ROUND_CEILING),
    )


def says_nothing(low: float, high: float) -> bool:
    """Return whether the ends of an interval lie more than a factor of `FAR` apart."""
    return high > FAR * low >= 0


def ratio_digits(value: float, low: float, high: float) -> tuple[str, str, str]:
    """Return value, low and high of a ratio. An end beyond 1 is shown beyond 1, with at most four digits more.

    The end decides whether one is more than the other: 1.03 must not be read as 1.0.
    """
    for more in range(5):
        middle, left, right = interval_digits(value, low, high, more)
        if not (low > 1 >= _read(left) or high < 1 <= _read(right)):
            return middle, left, right
    return interval_digits(value, low, high)


def ratio_words(value: float, low: float | None, high: float | None) -> str:
    """Return a ratio as `2.1x [2.0, 2.2]`, as `2.10x (no interval)`, or as not known yet."""
    if low is None or high is None:
        return f"{significant(value)}x (no interval)"
    if says_nothing(low, high):
        return UNKNOWN
    middle, left, right = ratio_digits(value, low, high)
    return f"{middle}x [{left}, {right}]"


def fixed(value: float, decimals: int, rounding: str) -> str:
    """Return `value` with this many decimals and commas between thousands; `rounding` is one of decimal's modes."""
    # The shortest text of the float, to 12 digits: 2.1 stays 2.1, and a ceiling does not round up 2.1000000000000001.
    exact = Decimal(repr(float(f"{value:.12g}")))
    return f"{exact.quantize(Decimal(1).scaleb(-decimals), rounding=rounding, context=_ANY_FLOAT):,f}"


def _read(digits: str) -> float:
    return float(digits.replace(",", ""))


def _magnitude(value: float) -> int:
    return math.floor(math.log10(abs(value))) if value else 0


def count_of(number: int, noun: str) -> str:
    """Return `1 cell` or `3 cells`."""
    return f"{number} {noun}{'' if number == 1 else 's'}"


def part_of(share: float, whole: str) -> str:
    """Return a share of a whole in full percent: `1 % of the machine`, or `less than 1 % of the machine`."""
    percent = round(100 * share)
    return f"{percent or 'less than 1'} % of the {whole}"


def gib(size: float, decimals: int = 0) -> str:
    """Return bytes as `24 GiB`, or with so many decimals as `23.5 GiB`."""
    return f"{size / 2**30:.{decimals}f} GiB"


# Durations as words, and words as durations.

SECONDS_PER_HOUR = 3600.0


def duration(seconds: float) -> str:
    """Return so many seconds in words: `0:01:30`, `1 day, 2:00:00`."""
    return str(timedelta(seconds=round(seconds)))


def rough(seconds: float) -> str:
    """Return an estimate of so many seconds in words: `20 seconds`, `3 minutes`, `5 hours`, `2 days`."""
    for size, word in ((86400, "day"), (3600, "hour"), (60, "minute")):
        if seconds > 1.5 * size:
            return count_of(round(seconds / size), word)
    return count_of(max(10, 10 * math.ceil(seconds / 10)), "second")


def duration_in(text: str, units: Mapping[str, float]) -> float | None:
    """Return the duration in `90m`, where `units` has the size of `m`; a bare number's unit is "". None without one."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([a-z]?)", text.strip())
    return float(match[1]) * units[match[2]] if match is not None and match[2] in units else None


# Text made safe for a terminal, which obeys control characters: configs, labels and reasons are written by others.

_UNSAFE = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")
"""Control characters but tab and newline, marks that turn the direction of writing, and halves of characters."""


def escaped(text: str) -> str:
    """Return `text` with every character that a terminal obeys, or cannot show, in the escape of a Python string."""
    return _UNSAFE.sub(lambda found: found[0].encode("unicode_escape").decode(), text)
