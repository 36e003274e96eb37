"""The numbers that findings are made of: a value with its interval, a ratio, a metric over repeats, and verdicts."""

from __future__ import annotations

from enum import StrEnum

from accelsweep.json_documents import Frozen


class Verdict(StrEnum):
    """The conclusion that a ratio's interval supports, given the practical threshold. `undecided` is an honest answer.

    `not yet` stands where fewer than 3 blocks hold both sides, `disturbed` where others used the machine meanwhile.
    `larger` and `smaller` stand for `faster` and `slower` where the compared metric is a size
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
"""More of the compared metric than the baseline has."""


LESS = (Verdict.slower, Verdict.smaller)
"""Less of it."""


class Estimate(Frozen):
    """A value with its interval; `low` and `high` are None, with a `reason`, where there is no interval.

    `confidence` is the confidence of this interval, after any widening for the family it belongs to.
    """

    value: float
    low: float | None
    high: float | None
    unit: str
    confidence: float
    count: int
    reason: str | None = None


class Speedup(Frozen):
    """The ratio of a setting's rate to the baseline's. `paired` says whether both were measured in the same blocks."""

    ratio: Estimate
    paired: bool


class Summary(Frozen):
    """A metric over a setting's repeats: the median and the range, or the reason why there is none."""

    median: float | None
    minimum: float | None
    maximum: float | None
    count: int
    unit: str
    reason: str | None = None
    scope: str | None = None
    provenance: str | None = None
