"""The advice: which setting to choose, how sure that is, and what would settle it."""

from __future__ import annotations

from enum import StrEnum

from accelsweep.base.documents import Frozen
from accelsweep.core.findings.measured import CellFinding


class Choice(Frozen):
    """A cell worth choosing, why, and how it compares, in words whose numbers stand in the cell's finding.

    `hardware` tells apart the findings of a cell that was measured on several kinds of it.
    """

    cell: str
    title: str
    sentence: str
    hardware: str | None = None

    def chooses(self, finding: CellFinding) -> bool:
        """Return whether this is the chosen cell, on the chosen hardware."""
        return finding.cell == self.cell and self.hardware in (None, finding.hardware)


class Certainty(StrEnum):
    """The trust that a headline deserves: one word beside it."""

    sure = "sure"
    not_told_apart = "not told apart"
    not_yet = "not yet"
    disturbed = "disturbed"


class Recommendation(Frozen):
    """The advice. `settle` is the command that would settle open questions, or None where there are none.

    `headline` is the answer in at most twelve words, and `detail` what belongs beside it; `sentence` is both.
    `settle_blocks` is the number of blocks that the command adds, 0 where it adds none. `settle_minutes` is their
    estimated time by the wall times of the runs so far, or None.
    """

    choice: Choice | None
    sentence: str
    alternatives: tuple[Choice, ...]
    settle: str | None
    settle_blocks: int = 0
    settle_minutes: float | None = None
    headline: str = ""
    detail: str = ""
    certainty: Certainty = Certainty.not_yet

    @property
    def alternatives_title(self) -> str:
        """The heading of the alternatives: on several kinds of hardware, they are the advice on each."""
        each = self.choice is None or any(one.title == f"On {one.hardware}" for one in self.alternatives)
        return "On each kind of hardware" if each else "Alternatives"
