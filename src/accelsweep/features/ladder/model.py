"""The config key that names a ladder's axis, and the rungs in the findings."""

from __future__ import annotations

from pydantic import BaseModel

from accelsweep.json_documents import Frozen, NonEmpty
from accelsweep.records.estimates import Estimate, Verdict
from accelsweep.records.findings import Section


class LadderOptions(BaseModel):
    """`report.ladder`: the axis whose values are the rungs, each of which builds on the one before."""

    ladder: NonEmpty | None = None


class Rung(Frozen):
    """One rung of a ladder: its rate, and its gain over the last measured rung and over the first one.

    `ladder` states the values of the other axes, which all of its rungs share; `step` is the value on the ladder's
    axis. A rung without a measurement has no rate but a `reason`. `before` is the rung that `gain` is over, None for
    the first.
    """

    ladder: str
    hardware: str | None
    step: str
    setting: str
    rate: Estimate | None
    before: str | None
    gain: Estimate | None
    verdict: Verdict
    total: Estimate | None
    total_verdict: Verdict
    reason: str


class Ladder(Section):
    """The rungs of all ladders of a sweep, from first to last."""

    rungs: tuple[Rung, ...]
