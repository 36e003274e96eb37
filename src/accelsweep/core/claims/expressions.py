"""The expression of a claim's figure: metrics and numbers, joined by `*` and `/`."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

NUMBER = r"(\d+(?:\.\d*)?(?:e[+-]?\d+)?)"
"""A positive number as a pattern, with one group."""

_FACTOR = re.compile(rf"\s*(?:([A-Za-z_][\w.]*)|{NUMBER})\s*")


class Factor(NamedTuple):
    """One factor of an expression: the name of a metric or a number, and the exponent 1 or -1."""

    of: str | float
    exponent: int


def factors(expression: str) -> tuple[Factor, ...]:
    """Return the factors of `samples_per_second`, `window_samples / energy_joules`, `1e6 / samples_per_second`, ...

    Raises ValueError for anything but metrics and positive numbers joined by `*` and `/`.
    """
    return tuple(_factors(expression))


def _factors(expression: str) -> Iterator[Factor]:
    exponent = 1
    for part in re.split(r"([*/])", expression):
        if part in ("*", "/"):
            exponent = 1 if part == "*" else -1
            continue
        match = _FACTOR.fullmatch(part)
        if match is None or (match[2] and not float(match[2])):
            raise ValueError(f"{expression!r} is not understood; write metrics and numbers joined by * and /")
        yield Factor(match[1] or float(match[2]), exponent)
