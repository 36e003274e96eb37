"""The basis of advice: the findings of the cells, the rules behind their verdicts, and the observed noise."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from accelsweep.analyse.advice.wording import Wording, wording_for
from accelsweep.analyse.findings.against_baseline import Rules
from accelsweep.analyse.findings.quality import QualityMeasure
from accelsweep.analyse.statistics.repeats import planned_repeats
from accelsweep.core.cells.cell import in_words
from accelsweep.core.findings.measured import CellFinding
from accelsweep.core.findings.numbers import Verdict
from accelsweep.core.planned.plans import Manifest


@dataclass(frozen=True)
class Situation:
    """The basis of one advice: cells with their verdicts, the rules behind them, and the observed noise.

    `front` names the cells on the Pareto front; `noise` is the standard deviation of a log rate in a block, or None.
    `rivals` gives the cells that cannot be told apart from one of them. `block_seconds` is the wall time that one more
    block takes, or None. `metric` is what the cells are compared by.
    """

    manifest: Manifest
    cells: Sequence[CellFinding]
    rules: Rules
    quality: QualityMeasure
    noise: float | None
    front: Sequence[str]
    rivals: Callable[[CellFinding], Sequence[CellFinding]]
    block_seconds: float | None = None
    metric: str = "samples_per_second"

    @property
    def repeats(self) -> int:
        """The repeats that these cells' ratios rest on."""
        return planned_repeats(self.cells, self.manifest)

    @property
    def room(self) -> int:
        """The number of further blocks that may be advised: no more than `repeats_most` in all; 0 if none."""
        return max(0, self.manifest.settings.repeats_most - self.repeats)

    @property
    def baseline(self) -> CellFinding | None:
        """The measured baseline, or None."""
        return next((cell for cell in self.cells if cell.verdict is Verdict.baseline), None)

    @property
    def baseline_name(self) -> str:
        """The baseline's name as prose."""
        return in_words(self.baseline.axes) if self.baseline is not None else "the baseline"

    def having(self, *verdicts: Verdict) -> list[CellFinding]:
        """Return the cells with one of these verdicts."""
        return [cell for cell in self.cells if cell.verdict in verdicts]

    @property
    def wording(self) -> Wording:
        """The words for more and less of the compared metric."""
        return wording_for(self.metric)
