"""The lines of a history: points in order, never of two machines or of two settings, and where a line changes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from accelsweep.analyse.history.points import Found, LineKey, points_of, refuse_without_rates
from accelsweep.analyse.statistics.changes import FEWEST_POINTS, LevelStep, level_steps
from accelsweep.analysis.intervals import Family, exponential_estimate
from accelsweep.analysis.merge_sweeps import Part
from accelsweep.config.setting import label
from accelsweep.core.derived.histories import History, HistoryLine, Order, RateChange, software_between
from accelsweep.errors import InputError
from accelsweep.records.estimates import Verdict
from accelsweep.records.run_environment import HardwareKind, names_of
from accelsweep.significant_digits import count_of


def history_of(parts: Sequence[Part], committed: Mapping[str, str]) -> History:
    """Return the history of several sweeps, whose confidence is that of the last one.

    `committed` has the date of each commit that is known here. Raises InputError where no run has a rate, and where
    each setting has one point only.
    """
    confidence, seen = parts[-1].manifest.settings.analysis.confidence, set[str]()
    found = [point for part in parts for point in points_of(part, seen, committed, confidence)]
    refuse_without_rates(parts, found)
    order, reason = _order(found)
    lines: dict[LineKey, list[Found]] = {}
    for one in sorted(found, key=lambda one: _when(one, order)):
        lines.setdefault(one.key, []).append(one)
    names = names_of(key.hardware for key in lines)
    several = {key: points for key, points in lines.items() if len(points) > 1}
    if not several:
        raise InputError(_why_no_line(lines, names))
    family = Family(max(1, sum(_places(points) for points in several.values())), confidence)
    return History(
        sources=tuple(part.name for part in parts),
        order=order,
        order_reason=reason,
        confidence=confidence,
        family=family.size,
        lines=tuple(_line(key, points, names, family) for key, points in several.items()),
        alone=tuple(_label(points[0]) for points in lines.values() if len(points) == 1),
    )


def _order(found: Sequence[Found]) -> tuple[Order, str]:
    unknown = sum(one.point.committed is None for one in found)
    if not unknown:
        return Order.commit_date, "the commit of every point is in this repository"
    many = f"{unknown} of {count_of(len(found), 'point')}"
    return Order.measurement_date, f"the date of the commit of {many} is not known here"


def _when(one: Found, order: Order) -> tuple[str, str, int, str]:
    first = (one.point.committed or "") if order is Order.commit_date else ""
    return first, one.began, one.number, one.point.measured


def _counted(points: Sequence[Found]) -> list[int]:
    """Return the numbers of the points that count for changes: disturbed ones do not."""
    return [number for number, one in enumerate(points) if one.point.disturbed is None]


def _places(points: Sequence[Found]) -> int:
    count = len(_counted(points))
    return count - 1 if count >= FEWEST_POINTS else 0


def _line(key: LineKey, points: Sequence[Found], names: Mapping[HardwareKind, str], family: Family) -> HistoryLine:
    counted = _counted(points)
    steps = level_steps([points[number].level for number in counted], family)
    few = f"{count_of(len(counted), 'undisturbed point')}, and a change needs {FEWEST_POINTS}"
    last = points[-1]
    return HistoryLine(
        cell=key.cell,
        label=_label(last),
        axes=dict(last.axes),
        hardware=names.get(key.hardware, "unknown hardware"),
        machine=key.machine,
        rate_unit=last.rate_unit,
        points=tuple(one.point for one in points),
        changes=tuple(_change(step, counted, points, family) for step in steps),
        reason=few if len(counted) < FEWEST_POINTS else "",
    )


def _change(step: LevelStep, counted: Sequence[int], points: Sequence[Found], family: Family) -> RateChange:
    before, after = points[counted[step.at - 1]].point, points[counted[step.at]].point
    return RateChange(
        at=counted[step.at],
        ratio=exponential_estimate(step.interval, "1", family),
        verdict=Verdict.faster if step.interval.center > 0 else Verdict.slower,
        software=software_between(before, after),
    )


def _label(one: Found) -> str:
    return label(one.axes)


def _why_no_line(lines: Mapping[LineKey, Sequence[Found]], names: Mapping[HardwareKind, str]) -> str:
    """Return why every setting has a single point: one sweep, other settings, or other machines."""
    machines = {(key.hardware, key.machine) for key in lines}
    settings = {key.cell for key in lines}
    told = f"{count_of(len(settings), 'setting')} with one point each, so there is no history"
    if len(machines) > 1 and len(settings) < len(lines):
        listed = ", ".join(sorted({names.get(key.hardware, "unknown hardware") for key in lines}))
        return f"{told}: the sweeps ran on {len(machines)} machines ({listed}), and machines are not mixed"
    return f"{told}: name more sweeps of the same settings, or measure this one again at another commit"
