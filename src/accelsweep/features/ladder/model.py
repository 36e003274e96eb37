"""The documents of a ladder: the config key that names its axis, and the rungs in the findings."""

from __future__ import annotations

from pydantic import BaseModel

from accelsweep.json_documents import Frozen, NonEmpty
from accelsweep.records.estimates import Estimate, Verdict
from accelsweep.records.findings import Section


class LadderOptions(BaseModel):
    """Keys of `report`. `ladder` names the axis whose values are rungs, each of which adds to the last."""

    ladder: NonEmpty | None = None


class Rung(Frozen):
    """One rung of a ladder: the rate with it, and its gain over the last measured rung and over the first one.

    `ladder` says which other axes' values all of its rungs share; `step` is the axis' value. A rung that was not
    measured has no rate, and `reason` says why. `before` is the rung that `gain` is over, None for the first.
    """

    ladder: str
    hardware: str | None
    step: str
    cell: str
    rate: Estimate | None
    before: str | None
    gain: Estimate | None
    verdict: Verdict
    total: Estimate | None
    total_verdict: Verdict
    reason: str


class Ladder(Section):
    """The rungs of all ladders of a sweep, in the order in which they add up."""

    rungs: tuple[Rung, ...]
