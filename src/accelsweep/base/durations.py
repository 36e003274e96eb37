"""Durations as words, and words as durations."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from datetime import timedelta

from accelsweep.base.digits import count_of

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
