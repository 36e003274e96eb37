"""A ladder: each rung adds one optimisation to the last, and has its gain over the last and over the first.

The rungs are the values of one axis (`report.ladder`), in the order of the grid. A rung without a rate (it failed, or
it missed its target) stays as a row with its reason. The rung after it is compared with the last one that has a rate.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from accelsweep.analysis.analyse_sweep import Analysis
from accelsweep.analysis.baseline_comparison import Comparison, Rules, compare, endings, own_rate
from accelsweep.analysis.comparability import difference
from accelsweep.analysis.intervals import Family
from accelsweep.analysis.run_results import CellRuns, series_label
from accelsweep.features.ladder.model import Ladder, LadderOptions, Rung
from accelsweep.json_documents import canonical_json
from accelsweep.records.estimates import Verdict
from accelsweep.records.run_environment import HardwareKind


def build_section(analysis: Analysis) -> Ladder | None:
    """Return the rungs of the sweep's ladders; None for a sweep without a ladder."""
    axis = LadderOptions.model_validate(analysis.manifest.settings.report).ladder
    rungs = ladders(analysis.groups, axis, analysis.rules, analysis.names)
    return Ladder(rungs=rungs) if rungs else None


def ladders(
    groups: Sequence[CellRuns], axis: str | None, rules: Rules, hardware: Mapping[HardwareKind, str]
) -> tuple[Rung, ...]:
    """Return the rungs of every ladder over `axis`; `hardware` names each kind of machine by its canonical JSON.

    Cells that differ in another axis or were measured on machines of another kind stand on another ladder. All gains of
    a sweep hold together: rungs that the plan supports count, measured or not. None without a ladder (`axis` None).
    """
    climbs = list(_climbs(groups, axis)) if axis is not None else []
    family = Family(max(1, sum(_ratios(climb) for climb in climbs)), rules.family.confidence)
    gains = _gains([step for climb in climbs for step in _steps(climb)], replace(rules, family=family))
    return tuple(rung for climb in climbs for rung in _rungs(climb, axis or "", gains, rules, hardware))


def _climbs(groups: Sequence[CellRuns], axis: str) -> Iterator[list[CellRuns]]:
    """Yield the cells of each ladder, in grid order; a cell that did not run belongs to every kind of hardware."""
    found: dict[str, list[CellRuns]] = {}
    for group in (group for group in groups if axis in group.planned.axes):
        rest = {key: value for key, value in group.planned.axes.items() if key != axis}
        found.setdefault(canonical_json(rest), []).append(group)
    for members in found.values():
        kinds = list(dict.fromkeys(one.hardware for one in members if one.hardware)) or [HardwareKind()]
        for kind in kinds:
            climb = [one for one in members if one.hardware in (kind, HardwareKind())]
            if len(climb) > 1:
                yield climb


def _ratios(climb: Sequence[CellRuns]) -> int:
    """Return how many gains a ladder prints: over the rung before and over the first; for the second, one is both."""
    steps = sum(one.planned.unsupported is None for one in climb)
    return max(0, 2 * (steps - 1) - 1)


@dataclass(frozen=True)
class _Step:
    """A cell of a ladder with the last one before it that has a rate, and the first that has one; or None."""

    one: CellRuns
    before: CellRuns | None
    first: CellRuns | None


def _steps(climb: Sequence[CellRuns]) -> Iterator[_Step]:
    rated = [one for one in climb if one.rated]
    for index, one in enumerate(climb):
        earlier = [other for other in climb[:index] if other.rated]
        yield _Step(one, earlier[-1] if earlier else None, rated[0] if rated and rated[0] is not one else None)


_Gains = Mapping[tuple[int, int], Comparison]
"""The comparisons of pairs of rows, by the rows' identities."""


def _gains(steps: Sequence[_Step], rules: Rules) -> _Gains:
    """Return the gains of all rungs that may be compared: one pool of variances for each kind of hardware."""
    asked = {
        (id(step.one), id(other)): (step.one, other)
        for step in steps
        for other in (step.before, step.first)
        if other is not None and step.one.rated
    }
    refusals = {key: difference(*sides, rules.axes, rules.across) for key, sides in asked.items()}
    alike = {key: sides for key, sides in asked.items() if refusals[key] is None}
    found = dict(zip(alike, compare(list(alike.values()), rules), strict=True))
    return {
        key: found[key] if refusal is None else Comparison(None, Verdict.refused, refusal)
        for key, refusal in refusals.items()
    }


def _rungs(
    climb: Sequence[CellRuns], axis: str, gains: _Gains, rules: Rules, hardware: Mapping[HardwareKind, str]
) -> Iterator[Rung]:
    name = series_label(climb[0].planned.axes, (axis,))
    kind = next((hardware.get(one.hardware) for one in climb if one.hardware), None)
    for step in _steps(climb):
        one, before = step.one, step.before
        gain, total = _over(one, before, gains), _over(one, step.first, gains)
        yield Rung(
            ladder=name,
            hardware=kind,
            step=str(one.planned.axes[axis]),
            cell=one.cell,
            rate=own_rate(one, rules.family.confidence),
            before=str(before.planned.axes[axis]) if before is not None and one.rated else None,
            gain=gain.ratio,
            verdict=gain.verdict,
            total=total.ratio,
            total_verdict=total.verdict,
            reason=gain.reason,
        )


def _over(one: CellRuns, other: CellRuns | None, gains: _Gains) -> Comparison:
    """Return the gain of one rung over another; the first that has a rate has none."""
    if not one.rated:
        return Comparison(None, Verdict.not_measured, endings(one))
    if other is None:
        return Comparison(None, Verdict.baseline, "the first rung that was measured")
    return gains[id(one), id(other)]
