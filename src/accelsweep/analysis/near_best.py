"""Cells that cannot be told apart from a chosen one: comparisons with the best, independent of the baseline's verdicts.

After J. C. Hsu, "Simultaneous confidence intervals for all distances from the 'best'", Annals of Statistics 1981. A
cell is out of the running only where the interval of its ratio to the best lies wholly below 1.
"""

from __future__ import annotations

from collections.abc import Sequence

from accelsweep.analysis.baseline_comparison import Rules, compare
from accelsweep.analysis.comparability import difference
from accelsweep.analysis.run_results import CellRuns


def not_told_apart(best: CellRuns, others: Sequence[CellRuns], rules: Rules) -> list[CellRuns]:
    """Return those of `others` that may be as fast as `best`; cells that may not be compared with it are left out."""
    alike = [
        (other, best)
        for other in others
        if other is not best and other.rated and difference(other, best, rules.axes, rules.across) is None
    ]
    highest = [found.ratio.high if found.ratio else None for found in compare(alike, rules)]
    return [other for (other, _), high in zip(alike, highest, strict=True) if high is None or high >= 1.0]
