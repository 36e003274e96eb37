"""The config key that specifies a ladder's axis, and the rungs in the findings."""

from __future__ import annotations

from pydantic import BaseModel

from accelsweep.json_documents import Frozen, NonEmpty
from accelsweep.records.estimates import Estimate, Verdict
from accelsweep.records.findings import Section


class LadderOptions(BaseModel):
    """`report.ladder`: the axis whose values are the rungs, each of which builds on the previous one."""

    ladder: NonEmpty | None = None


class Rung(Frozen):
    """A rung of a ladder: its rate, and its gains over the last measured and the first rung.

    `ladder` contains the values of the other axes, shared by all of its rungs; `step` is the value on the ladder's
    axis. For an unmeasured rung, `reason` is set instead of a rate. `before` is the rung that `gain` refers to, None
    for the first rung.
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
