"""Sizes that are found by trying, such as the largest batch: counts without noise, known to a bracket.

A search ends with a batch that fits and one that does not. The truth lies between them, so the interval of a ratio is
at least as wide as both brackets. Equal counts in each block are no sign of a coarse clock: they are the value.
"""

from __future__ import annotations

import math
from dataclasses import replace

from accelsweep.analyse.collected.runs import CellRuns
from accelsweep.analyse.statistics.intervals import FEWEST_PAIRS, Interval, variance
from accelsweep.core.cells.tasks import SIZES

_ALIKE = 1e-24
"""A variance of logarithms below this is rounding."""


def of_sizes(group: CellRuns, partner: CellRuns, found: Interval) -> Interval:
    """Return `found`, the interval of a log ratio, widened by both brackets where the metric is a size."""
    if group.rate_metric not in SIZES:
        return found
    open_sides = [side.label for side in (group, partner) if _bracket(side) is None]
    if open_sides:
        why = f"the search ended at measure.max_batch, so {' and '.join(open_sides)} may hold more: raise it"
        return replace(found, half_width=None, reason=why)
    half = found.half_width
    if half is None and _counts_alike(group, partner):
        half = 0.0
    if half is None:
        return found
    return replace(found, half_width=half + max(_bracket(group) or 0.0, _bracket(partner) or 0.0), reason=None)


def of_size(group: CellRuns, found: Interval) -> Interval:
    """Return `found`, the interval of a cell's own log size: without width where all of its runs agree."""
    if group.rate_metric not in SIZES or found.half_width is not None:
        return found
    same = len(group.log_rates) > 1 and variance(list(group.log_rates.values())) < _ALIKE
    return replace(found, half_width=0.0, reason=None) if same else found


def _counts_alike(group: CellRuns, partner: CellRuns) -> bool:
    """Return whether the ratio is the same in each of enough common blocks."""
    ours, theirs = group.log_rates, partner.log_rates
    differences = [ours[block] - theirs[block] for block in ours if block in theirs]
    return len(differences) >= FEWEST_PAIRS and variance(differences) < _ALIKE


def _bracket(group: CellRuns) -> float | None:
    """Return how far above the largest size that fits the truth may lie, as a logarithm; None where nothing bounds it.

    The smallest size that does not fit is one more than the largest that the truth can be.
    """
    widths = []
    for run in group.rated:
        fits, too_large = run.value("largest_batch"), run.value("too_large_batch")
        if fits is None or too_large is None:
            return None
        widths.append(math.log(max(too_large - 1.0, fits) / fits))
    return max(widths, default=None)
