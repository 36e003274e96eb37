"""Figures of claims between two sweeps, such as the same settings on one machine and on a cluster.

Two sweeps share no block, so the interval is Welch's, with blocks as units, as in `accelsweep compare`. Both sides in
one sweep are compared as in that sweep.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from accelsweep.analyse.claims.judge import (
    StatedFigure,
    comparable,
    disturbed,
    finding_of_figure,
    judged,
    tested,
    too_few,
)
from accelsweep.analyse.claims.named import Side, named
from accelsweep.analyse.claims.values import unmeasured, unnamed
from accelsweep.analysis.compare_sweeps import MACHINE, one_machine_each
from accelsweep.analysis.intervals import Family, exponential_estimate, welch_interval
from accelsweep.analysis.run_results import CellRuns
from accelsweep.core.claims.verdicts import ClaimVerdict
from accelsweep.core.findings.judged import ClaimFinding


def judge_between(
    one: StatedFigure, others: Mapping[str, Sequence[CellRuns]], family: Family, across: Collection[str] = ()
) -> ClaimFinding:
    """Return the finding of a figure between two sweeps, of which `others` has those that are there."""
    figure = one.figure
    assert figure.between is not None, "asked of such figures only"
    sides: list[Side] = []
    for name, wanted in zip(figure.between, figure.sides, strict=True):
        if name not in others:
            why = f"there is no sweep {name} here; run the same experiment with --name {name} where it belongs"
            return finding_of_figure(one, ClaimVerdict.not_testable, why)
        side = named(wanted, others[name])
        if missing := unnamed(side) or unmeasured(figure, side):
            return finding_of_figure(one, missing[0], f"{name}: {missing[1]}")
        sides.append(side)
    if figure.between[0] == figure.between[1]:
        return tested(one, sides, family, across)
    return _apart(one, sides, family, across)


def _apart(one: StatedFigure, sides: Sequence[Side], family: Family, across: Collection[str]) -> ClaimFinding:
    pair = comparable(one.figure, sides[0], sides[1], across)
    refusal = pair if isinstance(pair, str) else None
    if not isinstance(pair, str) and MACHINE not in across:
        refusal = one_machine_each(pair[1][0], pair[0][0])
    if isinstance(pair, str) or refusal is not None:
        return finding_of_figure(one, ClaimVerdict.not_testable, str(refusal))
    (ours, our_logs), (theirs, their_logs) = pair
    interval = welch_interval(list(our_logs.values()), list(their_logs.values()), family)
    held = disturbed([ours, theirs], one.figure) or too_few(min(len(our_logs), len(their_logs)), "of each side")
    return judged(one, exponential_estimate(interval, "1", family), [ours, theirs], held)
