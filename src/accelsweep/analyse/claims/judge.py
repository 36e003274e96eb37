"""Claims put to the test: the claimed figure, the value measured here, and whether they agree. None is ever dropped.

A figure whose cells were not planned, cannot run here, were not measured or may not be compared is `not testable here`,
with the reason. The figures of an analogue are judged in the same way, in rows of their own.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

from accelsweep.analyse.claims.named import Side, named
from accelsweep.analyse.claims.values import ended, exact_interval, logs_of, measured_of, unmeasured, unnamed
from accelsweep.analyse.statistics.shares import share
from accelsweep.analysis.baseline_comparison import disturbance
from accelsweep.analysis.comparability import difference, of_sizes
from accelsweep.analysis.intervals import FEWEST_PAIRS, Family, Interval, exponential_estimate, log_ratio, t_interval
from accelsweep.analysis.run_results import CellRuns
from accelsweep.config.schema import SIZES
from accelsweep.core.claims.claims import Claim, ClaimFigure
from accelsweep.core.claims.verdicts import ClaimVerdict, bounds, decide
from accelsweep.core.findings.judged import ClaimFinding
from accelsweep.records.estimates import Estimate
from accelsweep.records.metrics import UNTIMED


@dataclass(frozen=True)
class StatedFigure:
    """A figure, its claim, and the analogue's name if the figure belongs to an analogue."""

    claim: Claim
    figure: ClaimFigure
    analogue: str | None = None

    def sides(self) -> list[tuple[ClaimFigure, Mapping[str, Any]]]:
        """Return what selects each cell, with the figure whose metric counts there: two for a ratio, four for two."""
        return [(ratio, side) for ratio in self.figure.ratios for side in ratio.sides]


Wider = Callable[[StatedFigure, Sequence[CellRuns], Family], ClaimFinding]
"""Judges a figure over workloads or other sweeps, or on a device that was not measured; see `claims.wide`."""


def judge_claims(
    claims: Sequence[Claim],
    groups: Sequence[CellRuns],
    confidence: float,
    across: Collection[str] = (),
    wider: Wider | None = None,
) -> tuple[ClaimFinding, ...]:
    """Return each figure beside its measured value. Those that the plan can test hold together at this confidence.

    The cells of a ratio differ in the values that select them. Other fields of the config, the hardware of one
    accelerator and the software must be equal, but for the fields in `across`. Two ratios, of which one is over the
    other, may differ in anything.
    """
    stated = [one for claim in claims for one in _stated(claim)]
    found = [[named(side, groups) for _, side in one.sides()] for one in stated]
    testable = sum(
        one.figure.between is not None or all(any(not g.planned.unsupported for g in side.cells) for side in sides)
        for one, sides in zip(stated, found, strict=True)
    )
    family = Family(max(1, testable), confidence)
    return tuple(
        wider(one, groups, family) if wider is not None and one.figure.wide else tested(one, sides, family, across)
        for one, sides in zip(stated, found, strict=True)
    )


def _stated(claim: Claim) -> Iterator[StatedFigure]:
    yield from (StatedFigure(claim, figure) for figure in claim.figures)
    if claim.analogue is not None:
        yield from (StatedFigure(claim, figure, claim.analogue.says) for figure in claim.analogue.figures)


def tested(one: StatedFigure, sides: Sequence[Side], family: Family, across: Collection[str]) -> ClaimFinding:
    """Return the finding of a figure whose sides were found in one sweep."""
    for (ratio, _), side in zip(one.sides(), sides, strict=True):
        if missing := unnamed(side) or unmeasured(ratio, side):
            return finding_of_figure(one, *missing)
    if one.figure.outcome is not None:
        outcomes = [outcome for group in sides[0].cells for outcome in ended(group)]
        times = outcomes.count(one.figure.outcome)
        return judged(one, share(times, len(outcomes), family, str(one.figure.unit)), sides[0].cells[:1])
    if one.figure.against is None:
        group, logs = _known(sides[0], one.figure)[0]
        exact = exact_interval(group, one.figure, logs)
        estimate = exponential_estimate(exact or t_interval(list(logs.values()), family), str(one.figure.unit), family)
        return judged(one, estimate, [group], None if exact else disturbed([group], one.figure))
    return _ratio(one, sides, family, across)


def _ratio(one: StatedFigure, sides: Sequence[Side], family: Family, across: Collection[str]) -> ClaimFinding:
    """Return the finding of a ratio, or of a ratio over another one."""
    known: list[_Known] = []
    for number, ratio in enumerate(one.figure.ratios):
        pair = comparable(ratio, sides[2 * number], sides[2 * number + 1], across)
        if isinstance(pair, str):
            return finding_of_figure(one, ClaimVerdict.not_testable, pair)
        known += pair
    cells, logs = [cell for cell, _ in known], [logs for _, logs in known]
    shared = set.intersection(*map(set, logs))
    if len(known) > 2 and not shared:
        return finding_of_figure(one, ClaimVerdict.not_testable, "no block holds all four settings of the two ratios")
    interval = _ratio_of_ratios(logs, shared, family) if len(known) > 2 else log_ratio(logs[0], logs[1], family)
    if one.figure.metric in SIZES and len(known) == 2:
        interval = of_sizes(cells[0], cells[1], interval)
    held = disturbed(cells, one.figure) or too_few(len(shared))
    return judged(one, exponential_estimate(interval, "1", family), cells, held)


_Known = tuple[CellRuns, dict[str, float]]
"""A cell, and the logarithm of a figure's metric in each of its blocks."""


def _known(side: Side, figure: ClaimFigure) -> list[_Known]:
    return [(group, logs) for group in side.cells if (logs := logs_of(group, figure))]


def comparable(figure: ClaimFigure, ours: Side, theirs: Side, across: Collection[str]) -> tuple[_Known, _Known] | str:
    """Return the two cells of a ratio that share the most blocks, or why no two may be compared."""
    allowed = (*across, *(key for side in figure.sides for key in side))
    pairs = list(product(_known(ours, figure), _known(theirs, figure)))
    refusals = [difference(one[0], other[0], allowed, across) for one, other in pairs]
    comparable = [pair for pair, refusal in zip(pairs, refusals, strict=True) if refusal is None]
    if not comparable:
        return str(refusals[0])
    return max(comparable, key=lambda pair: len(pair[0][1].keys() & pair[1][1].keys()))


def _ratio_of_ratios(logs: Sequence[Mapping[str, float]], shared: Collection[str], family: Family) -> Interval:
    """Return the interval of log((a / b) / (c / d)) over the blocks that hold all four: paired, as a ratio is."""
    a, b, c, d = logs
    return t_interval([math.fsum((a[block], -b[block], -c[block], d[block])) for block in sorted(shared)], family)


_Held = tuple[ClaimVerdict, str]
"""The verdict that a claim has instead of the interval's, and why."""


def disturbed(cells: Sequence[CellRuns], figure: ClaimFigure) -> _Held | None:
    """Return that others disturbed one of these settings, or None. They cannot change what is counted and not timed."""
    if UNTIMED.issuperset(figure.metrics):
        return None
    reason = next(filter(None, map(disturbance, cells)), None)
    return None if reason is None else (ClaimVerdict.disturbed, reason)


def too_few(blocks: int, which: str = "that hold both sides") -> _Held | None:
    """Return the verdict of a ratio that rests on too few blocks, as in every other comparison."""
    if blocks >= FEWEST_PAIRS:
        return None
    return ClaimVerdict.undecided, f"a verdict needs {FEWEST_PAIRS} blocks {which}, and there are {blocks}"


def judged(
    one: StatedFigure, measured: Estimate, cells: Sequence[CellRuns], instead: _Held | None = None
) -> ClaimFinding:
    """Return the finding of a measured figure: the verdict of its interval, or `instead` of that another verdict."""
    claimed = one.figure.claimed
    if claimed is None:
        return finding_of_figure(one, ClaimVerdict.measured, measured.reason or "", measured, cells)
    decision = decide(measured.low, measured.high, bounds(claimed, one.figure.tolerance)), measured.reason or ""
    return finding_of_figure(one, *(instead or decision), measured, cells)


def finding_of_figure(
    one: StatedFigure,
    decision: ClaimVerdict,
    reason: str,
    measured: Estimate | None = None,
    cells: Sequence[CellRuns] = (),
) -> ClaimFinding:
    """Return the finding of a figure, with the settings that it was measured on."""
    names = [*(group.cell for group in cells), None, None]
    return ClaimFinding(
        id=one.claim.id,
        statement=one.claim.statement,
        source=one.claim.source,
        figure=one.figure.name,
        analogue=one.analogue,
        metric=one.figure.metric,
        claimed=one.figure.words,
        measured=measured,
        verdict=decision,
        reason=reason,
        differs=one.claim.differs,
        cell=names[0],
        against=names[1],
        labels=tuple(group.label for group in cells),
        doubts=tuple(dict.fromkeys(doubt for group in cells for run in measured_of(group) for doubt in run.doubts)),
        published=one.figure.others,
        unit=one.figure.unit,
    )
