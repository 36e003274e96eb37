"""Projected values: ranges, and their numbers in words."""

from __future__ import annotations

from accelsweep.json_documents import Frozen


class Range(Frozen):
    """A projected value with its 90 % interval."""

    value: float
    low: float
    high: float

    @property
    def words(self) -> str:
        """The range as prose, `about 2,800, 1,900 to 4,100`: no measured number is written like this."""
        return f"about {two_digits(self.value)}, {two_digits(self.low)} to {two_digits(self.high)}"


def two_digits(value: float) -> str:
    """Return a projected value, which has two digits already, without an exponent."""
    return f"{value:,.12f}".rstrip("0").rstrip(".")


def shortened(value: float) -> str:
    """Return a value rounded to two digits, without an exponent."""
    return two_digits(float(f"{value:.2g}"))
