"""Claims put to the test: the claimed figure, the value measured here, and whether they agree. None is ever dropped.

A figure whose cells were not planned, cannot run here, were not measured or may not be compared is `not testable here`,
with the reason. The figures of an analogue are judged in the same way, in rows of their own.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

from accelsweep.analyse.findings.against_baseline import endings
from accelsweep.analyse.findings.disturbance import disturbance
from accelsweep.analyse.findings.named import Side, named
from accelsweep.analyse.likeness import difference
from accelsweep.analyse.runs import CellRuns, RunRow
from accelsweep.analyse.sizes import of_sizes
from accelsweep.analyse.statistics.intervals import (
    FEWEST_PAIRS,
    Family,
    Interval,
    exponential_estimate,
    log_ratio,
    mean,
    t_interval,
)
from accelsweep.analyse.statistics.shares import share
from accelsweep.base.digits import count_of
from accelsweep.core.claims import Bounds, Claim, ClaimFigure, ClaimVerdict, Factor, bounds, factors
from accelsweep.core.findings import ClaimFinding, Estimate
from accelsweep.core.outcome import Outcome
from accelsweep.core.tasks import SIZES

COUNTED = "counted"
"""The provenance of a metric that is a number of things, known without noise."""


@dataclass(frozen=True)
class _Stated:
    """A figure, its claim, and the analogue's name if the figure belongs to an analogue."""

    claim: Claim
    figure: ClaimFigure
    analogue: str | None = None

    def sides(self) -> tuple[Mapping[str, Any], ...]:
        """Return the values that select the cell, and those that select the other cell of a ratio."""
        cell, against = self.figure.cell, self.figure.against
        return (cell,) if against is None else (cell, against)


def judge_claims(
    claims: Sequence[Claim], groups: Sequence[CellRuns], confidence: float, across: Collection[str] = ()
) -> tuple[ClaimFinding, ...]:
    """Return each figure beside its measured value. Those that the plan can test hold together at this confidence.

    The cells of a ratio differ in the values that select them. Other fields of the config, the hardware of one
    accelerator and the software must be equal, but for the fields in `across`.
    """
    stated = [one for claim in claims for one in _stated(claim)]
    found = [[named(side, groups) for side in one.sides()] for one in stated]
    testable = sum(all(any(not g.planned.unsupported for g in side.cells) for side in sides) for sides in found)
    family = Family(max(1, testable), confidence)
    return tuple(_tested(one, sides, family, across) for one, sides in zip(stated, found, strict=True))


def _stated(claim: Claim) -> Iterator[_Stated]:
    yield from (_Stated(claim, figure) for figure in claim.figures)
    if claim.analogue is not None:
        yield from (_Stated(claim, figure, claim.analogue.says) for figure in claim.analogue.figures)


def _tested(one: _Stated, sides: Sequence[Side], family: Family, across: Collection[str]) -> ClaimFinding:
    for side in sides:
        if missing := _unnamed(side) or _unmeasured(one.figure, side):
            return _finding(one, *missing)
    if one.figure.outcome is not None:
        ended = [outcome for group in sides[0].cells for outcome in _ended(group)]
        times = ended.count(one.figure.outcome)
        return _judged(one, share(times, len(ended), family, str(one.figure.unit)), sides[0].cells[:1])
    measured = [[(group, logs) for group in side.cells if (logs := _logs(group, one.figure))] for side in sides]
    if one.figure.against is None:
        group, logs = measured[0][0]
        exact = _exact(group, one.figure, logs)
        estimate = exponential_estimate(exact or t_interval(list(logs.values()), family), str(one.figure.unit), family)
        return _judged(one, estimate, [group], None if exact else _disturbed([group]))
    allowed = (*across, *one.figure.cell, *one.figure.against)
    pairs = list(product(*measured))
    refusals = [difference(ours[0], theirs[0], allowed, across) for ours, theirs in pairs]
    comparable = [pair for pair, refusal in zip(pairs, refusals, strict=True) if refusal is None]
    if not comparable:
        return _finding(one, ClaimVerdict.not_testable, str(refusals[0]))
    ours, theirs = max(comparable, key=lambda pair: len(pair[0][1].keys() & pair[1][1].keys()))
    interval = log_ratio(ours[1], theirs[1], family)
    if one.figure.metric in SIZES:
        interval = of_sizes(ours[0], theirs[0], interval)
    why = _disturbed([ours[0], theirs[0]]) or _too_few(len(ours[1].keys() & theirs[1].keys()))
    return _judged(one, exponential_estimate(interval, "1", family), [ours[0], theirs[0]], why)


_Held = tuple[ClaimVerdict, str]
"""The verdict that a claim has instead of the interval's, and why."""


def _disturbed(cells: Sequence[CellRuns]) -> _Held | None:
    reason = next(filter(None, map(disturbance, cells)), None)
    return None if reason is None else (ClaimVerdict.disturbed, reason)


def _too_few(shared: int) -> _Held | None:
    """Return the verdict of a ratio whose sides share too few blocks, as in every other comparison."""
    if shared >= FEWEST_PAIRS:
        return None
    return ClaimVerdict.undecided, f"a verdict needs {FEWEST_PAIRS} blocks that hold both sides, and there are {shared}"


def _judged(one: _Stated, measured: Estimate, cells: Sequence[CellRuns], instead: _Held | None = None) -> ClaimFinding:
    """Return the finding of a measured figure: the verdict of its interval, or `instead` of that another verdict."""
    claimed = one.figure.claimed
    if claimed is None:
        return _finding(one, ClaimVerdict.measured, measured.reason or "", measured, cells)
    decision = decide(measured, bounds(claimed, one.figure.tolerance)), measured.reason or ""
    return _finding(one, *(instead or decision), measured, cells)


def decide(measured: Estimate, agreeing: Bounds) -> ClaimVerdict:
    """Return the interval's verdict: wholly within the agreeing values, wholly above, wholly below, or undecided."""
    low, high = measured.low, measured.high
    if low is None or high is None:
        return ClaimVerdict.undecided
    if agreeing.highest is not None and low > agreeing.highest:
        return ClaimVerdict.more
    if agreeing.lowest is not None and high < agreeing.lowest:
        return ClaimVerdict.less
    above = agreeing.lowest is None or low >= agreeing.lowest
    below = agreeing.highest is None or high <= agreeing.highest
    return ClaimVerdict.agrees if above and below else ClaimVerdict.undecided


_Missing = tuple[ClaimVerdict, str]
"""The verdict and the reason for a side of a figure that has no value."""


def _unnamed(side: Side) -> _Missing | None:
    """Return why the cells that were found are not the one cell that a figure must name, or None if they are."""
    cells, words = len({group.cell for group in side.cells}), _words(side.wanted)
    if not cells:
        return ClaimVerdict.not_testable, f"no setting of this sweep has {words}"
    if not side.known:
        may = f"{count_of(cells, 'setting')} may: {endings(side.cells[0])}"
        return ClaimVerdict.not_testable, f"no setting of this sweep is known to have {words}; {may}"
    if cells > 1:
        return ClaimVerdict.not_testable, f"{cells} settings of this sweep have {words}; the claim must name one"
    return None


def _unmeasured(figure: ClaimFigure, side: Side) -> _Missing | None:
    """Return why the runs of this side have no value of the figure's metric, or None if they have one."""
    cells, words = side.cells, _words(side.wanted)
    if any(_ended(group) if figure.outcome is not None else _logs(group, figure) for group in cells):
        return None
    runs = [run for group in cells for run in group.runs]
    if any(_measured(group) for group in cells):
        return ClaimVerdict.not_testable, f"{words}: {_absent(figure, cells)}"
    if runs and all(run.outcome is Outcome.not_run for run in runs):
        return ClaimVerdict.not_run, f"{words}: {runs[0].reason}"
    return ClaimVerdict.not_testable, f"{words}: {endings(cells[0])}"


def _words(wanted: Mapping[str, Any]) -> str:
    return ", ".join(f"{key}={'null' if value is None else value}" for key, value in wanted.items())


def _absent(figure: ClaimFigure, cells: Sequence[CellRuns]) -> str:
    """Return which metric of the expression no run has, with the reason that the runs give."""
    runs = [run for group in cells for run in _measured(group)]
    for name in figure.metrics:
        if not any(run.value(name) for run in runs):
            reason = next((run.metrics[name].reason for run in runs if name in run.metrics), None)
            return f"{name} was not measured" + (f" ({reason})" if reason else "")
    return f"{figure.metric} was not measured"


def _logs(group: CellRuns, figure: ClaimFigure) -> dict[str, float]:
    """Return the natural logarithm of the figure's metric per block; runs that share a block are averaged."""
    found: dict[str, list[float]] = {}
    parts = factors(figure.metric)
    for run in _measured(group):
        logs = [_log(run, part) for part in parts]
        if None not in logs:
            found.setdefault(run.block or "", []).append(math.fsum(log for log in logs if log is not None))
    return {block: mean(values) for block, values in found.items()}


def _exact(group: CellRuns, figure: ClaimFigure, logs: Mapping[str, float]) -> Interval | None:
    """Return an interval without width where everything in the expression was counted, without noise; or None."""
    readings = [run.metrics[name] for run in _measured(group) for name in figure.metrics if name in run.metrics]
    if len(set(logs.values())) > 1 or any(reading.provenance != COUNTED for reading in readings):
        return None
    return Interval(next(iter(logs.values())), 0.0, len(logs))


def _measured(group: CellRuns) -> list[RunRow]:
    """Return the measured runs, also those without the rate that the sweep's cells are compared by."""
    return [run for run in group.runs if run.outcome is Outcome.measured]


def _ended(group: CellRuns) -> list[Outcome]:
    """Return how the runs that began have ended, once for each block: runs that share one share a seed."""
    began = [run for run in group.runs if run.outcome not in (Outcome.not_run, Outcome.unsupported)]
    return list({run.block: run.outcome for run in reversed(began)}.values())


def _log(run: RunRow, part: Factor) -> float | None:
    value = run.value(part.of) if isinstance(part.of, str) else part.of
    return part.exponent * math.log(value) if value is not None and value > 0 else None


def _finding(
    one: _Stated,
    decision: ClaimVerdict,
    reason: str,
    measured: Estimate | None = None,
    cells: Sequence[CellRuns] = (),
) -> ClaimFinding:
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
        doubts=tuple(dict.fromkeys(doubt for group in cells for run in _measured(group) for doubt in run.doubts)),
        published=one.figure.others,
    )
