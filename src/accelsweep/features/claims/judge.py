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

from scipy import special

from accelsweep.analysis.baseline_comparison import disturbance, endings
from accelsweep.analysis.comparability import difference, of_sizes
from accelsweep.analysis.intervals import (
    FEWEST_PAIRS,
    Family,
    Interval,
    exponential_estimate,
    log_ratio,
    mean,
    significant,
    t_interval,
)
from accelsweep.analysis.run_results import CellRuns, RunRow
from accelsweep.config.schema import CellConfig
from accelsweep.config.tasks import SIZES
from accelsweep.features.claims.model import (
    Claim,
    ClaimFigure,
    ClaimFinding,
    ClaimVerdict,
    Factor,
    bounds,
    decide,
    factors,
)
from accelsweep.json_documents import look_up
from accelsweep.records.estimates import Estimate
from accelsweep.records.metrics import UNTIMED
from accelsweep.records.run_record import Outcome
from accelsweep.significant_digits import count_of

# The cells that a side of a claim's figure names, by values of their axes or configs.

_UNTOLD = object()


@dataclass(frozen=True)
class Side:
    """The wanted values of one side, and its cells. If `known` is False, these cells may have all of the values."""

    wanted: Mapping[str, Any]
    cells: tuple[CellRuns, ...]
    known: bool = True


def named(wanted: Mapping[str, Any], groups: Sequence[CellRuns]) -> Side:
    """Return the cells that have all of these values; if there are none, those whose values are unknown."""
    having = [
        one for one in groups if all(_value(one, key, groups) in (value, _UNTOLD) for key, value in wanted.items())
    ]
    surely = [one for one in having if all(_value(one, key, groups) == value for key, value in wanted.items())]
    return Side(wanted, tuple(surely or having), known=bool(surely) or not having)


def _value(group: CellRuns, key: str, groups: Sequence[CellRuns]) -> Any:
    """Return a value on an axis or in the config; NO_SUCH_KEY where there is none, _UNTOLD where no cell tells it."""
    if key in group.planned.axes:
        return group.planned.axes[key]
    if group.config is not None:
        return look_up(group.config.raw, key)
    told = [look_up(other.config.raw, key) for other in groups if other.config is not None and _tells(other, group)]
    return told[0] if told and all(value == told[0] for value in told) else _UNTOLD


def _tells(other: CellRuns, group: CellRuns) -> bool:
    """Return whether the config of `other` equals that of `group` but for keys that are axes: no group, no mapping."""
    ours, theirs, config = group.planned.axes, other.planned.axes, other.config
    return (
        config is not None
        and ours.keys() == theirs.keys()
        and all(ours[axis] == value or _is_leaf(config, axis, value) for axis, value in theirs.items())
    )


def _is_leaf(config: CellConfig, axis: str, value: Any) -> bool:
    return not isinstance(value, Mapping) and look_up(config.raw, axis) == value


# The values of the settings on one side of a claim's figure, per block, or the reason why there are none.

COUNTED_PROVENANCE = "counted"
"""The provenance of a metric that is a number of things, known without noise."""

Missing = tuple[ClaimVerdict, str]
"""The verdict and the reason for a side of a figure that has no value."""


def unnamed(side: Side) -> Missing | None:
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


def unmeasured(figure: ClaimFigure, side: Side) -> Missing | None:
    """Return why the runs of this side have no value of the figure's metric, or None if they have one."""
    cells, words = side.cells, _words(side.wanted)
    if any(ended(group) if figure.outcome is not None else logs_of(group, figure) for group in cells):
        return None
    runs = [run for group in cells for run in group.runs]
    if any(measured_of(group) for group in cells):
        return ClaimVerdict.not_testable, f"{words}: {_absent(figure, cells)}"
    if runs and all(run.outcome is Outcome.not_run for run in runs):
        return ClaimVerdict.not_run, f"{words}: {runs[0].reason}"
    return ClaimVerdict.not_testable, f"{words}: {endings(cells[0])}"


def _words(wanted: Mapping[str, Any]) -> str:
    return ", ".join(f"{key}={'null' if value is None else value}" for key, value in wanted.items())


def _absent(figure: ClaimFigure, cells: Sequence[CellRuns]) -> str:
    """Return which metric of the expression no run has, with the reason that the runs give."""
    runs = [run for group in cells for run in measured_of(group)]
    for name in figure.metrics:
        if not any(run.value(name) for run in runs):
            reason = next((run.metrics[name].reason for run in runs if name in run.metrics), None)
            return f"{name} was not measured" + (f" ({reason})" if reason else "")
    return f"{figure.metric} was not measured"


def logs_of(group: CellRuns, figure: ClaimFigure) -> dict[str, float]:
    """Return the natural logarithm of the figure's metric per block; runs that share a block are averaged."""
    found: dict[str, list[float]] = {}
    parts = factors(figure.metric)
    for run in measured_of(group):
        logs = [_log(run, part) for part in parts]
        if None not in logs:
            found.setdefault(run.block or "", []).append(math.fsum(log for log in logs if log is not None))
    return {block: mean(values) for block, values in found.items()}


def exact_interval(group: CellRuns, figure: ClaimFigure, logs: Mapping[str, float]) -> Interval | None:
    """Return an interval without width where everything in the expression was counted, without noise; or None."""
    readings = [run.metrics[name] for run in measured_of(group) for name in figure.metrics if name in run.metrics]
    if len(set(logs.values())) > 1 or any(reading.provenance != COUNTED_PROVENANCE for reading in readings):
        return None
    return Interval(next(iter(logs.values())), 0.0, len(logs))


def measured_of(group: CellRuns) -> list[RunRow]:
    """Return the measured runs, also those without the rate that the sweep's cells are compared by."""
    return [run for run in group.runs if run.outcome is Outcome.measured]


def ended(group: CellRuns) -> list[Outcome]:
    """Return how the runs that began have ended, once for each block: runs that share one share a seed."""
    began = [run for run in group.runs if run.outcome not in (Outcome.not_run, Outcome.unsupported)]
    return list({run.block: run.outcome for run in reversed(began)}.values())


def _log(run: RunRow, part: Factor) -> float | None:
    value = run.value(part.of) if isinstance(part.of, str) else part.of
    return part.exponent * math.log(value) if value is not None and value > 0 else None


# Shares of runs with an interval that is exact at any number of runs.


def share(times: int, of: int, family: Family, unit: str) -> Estimate:
    """Return `times / of` with the interval of Clopper and Pearson ("The Use of Confidence or Fiducial Limits", 1934).

    It covers at least at the family's confidence, also where something happened never or always. `of` is at least 1.
    """
    tail = (1.0 - family.each) / 2.0
    low = float(special.betaincinv(times, of - times + 1, tail)) if times else 0.0
    high = float(special.betaincinv(times + 1, of - times, 1.0 - tail)) if times < of else 1.0
    return Estimate(
        value=significant(times / of),
        low=significant(low),
        high=significant(high),
        unit=unit,
        confidence=significant(family.each),
        count=of,
    )


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
