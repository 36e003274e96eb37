"""The building blocks of findings: values with intervals, ratios, summaries over repeats, and verdicts."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from accelsweep.json_documents import Frozen
from accelsweep.plain_json import NO_OTHER_FIELDS
from accelsweep.significant_digits import interval_digits


class Verdict(StrEnum):
    """The conclusion that a ratio's interval supports, given the practical threshold.

    `not yet` means that fewer than 3 blocks contain both sides of the comparison; `disturbed` means that other load
    affected the measurement. `larger` and `smaller` replace `faster` and `slower` if the compared metric is a size
    (`tasks.SIZE_METRICS`).
    """

    faster = "faster"
    slower = "slower"
    larger = "larger"
    smaller = "smaller"
    same = "same"
    undecided = "undecided"
    not_yet = "not yet"
    disturbed = "disturbed"
    baseline = "baseline"
    refused = "refused"
    not_measured = "not measured"


MORE = (Verdict.faster, Verdict.larger)
"""Verdicts for settings whose compared metric is above the baseline's."""


LESS = (Verdict.slower, Verdict.smaller)
"""Verdicts for settings whose compared metric is below the baseline's."""


class Estimate(Frozen):
    """A value with its interval; without an interval, `low` and `high` are None and `reason` explains why.

    `confidence` is the level of this interval alone; it exceeds the family's joint level if the interval was widened.
    """

    value: float
    low: float | None
    high: float | None
    unit: str
    confidence: float
    count: int
    reason: str | None = None


def percent_change(ratio: Estimate) -> tuple[str, str]:
    """Return a rate's change in percent, and its interval in brackets ('' if there is none)."""
    value = 100.0 * (ratio.value - 1.0)
    if ratio.low is None or ratio.high is None:
        return f"{value:.1f}", ""
    middle, low, high = interval_digits(value, 100.0 * (ratio.low - 1.0), 100.0 * (ratio.high - 1.0))
    return middle, f" [{low}, {high}]"


class Speedup(Frozen):
    """The ratio of a setting's rate to the baseline's; `paired` if both were measured in the same blocks."""

    ratio: Estimate
    paired: bool


@dataclass(frozen=True, slots=True)  # no model, which takes eight times the memory: there are 60 for each setting
class Summary:
    """A metric over a setting's repeats: median and range, or the reason why there is none."""

    __pydantic_config__ = NO_OTHER_FIELDS

    median: float | None
    minimum: float | None
    maximum: float | None
    count: int
    unit: str
    reason: str | None = None
    scope: str | None = None
    provenance: str | None = None
