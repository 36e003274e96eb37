"""A claim's figure beside what was measured, with its verdict."""

from __future__ import annotations

from pydantic import Field

from accelsweep.core.claims.verdicts import ClaimVerdict
from accelsweep.json_documents import Frozen
from accelsweep.records.estimates import Estimate, Range
from accelsweep.records.run_record import Doubt


class ClaimFinding(Frozen):
    """One figure of a claim beside its measured value; `reason` says why there is no verdict or no interval.

    `analogue` describes the smaller experiment of this figure; None for a figure of the claim itself. `differs` are the
    known reasons why the two may differ. `cell` and `against` name the cells that were measured, `labels` gives them in
    words (empty where none were), `doubts` are those of their runs. `published` are the values of others, by their
    names. `projected` is the value where it was projected onto the board `board`: then nothing was tested. `unit` is
    that of a figure that is no ratio.
    """

    id: str
    statement: str
    source: str
    figure: str | None
    analogue: str | None
    metric: str
    claimed: str
    measured: Estimate | None
    verdict: ClaimVerdict
    reason: str
    differs: tuple[str, ...]
    cell: str | None
    against: str | None
    labels: tuple[str, ...]
    doubts: tuple[Doubt, ...] = ()
    published: dict[str, float] = Field(default_factory=dict)
    projected: Range | None = None
    board: str | None = None
    unit: str | None = None

    @property
    def verdict_words(self) -> str:
        """The verdict as prose; one on a projection begins with `projected:`."""
        if self.projected is None:
            return self.verdict.value
        return f"projected: {'no figure claimed' if self.verdict is ClaimVerdict.measured else self.verdict.value}"
