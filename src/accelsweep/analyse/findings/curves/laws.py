"""The universal scalability law of each scaling series, and the number of devices where a further one stops to pay."""

from __future__ import annotations

import math
from collections.abc import Sequence

from accelsweep.analyse.collected.runs import CellRuns
from accelsweep.analyse.findings.against_baseline import Rules
from accelsweep.analyse.findings.curves.scaling import ScalingCurve
from accelsweep.analyse.findings.curves.series import ranks
from accelsweep.analyse.findings.disturbance import disturbance
from accelsweep.analyse.statistics.intervals import Family, Interval, linear_estimate, significant
from accelsweep.analyse.statistics.universal import FEWEST_COUNTS, HALF, Logs, fit_law, most_devices
from accelsweep.core.findings.numbers import Estimate
from accelsweep.core.findings.series import DeviceCount, LawForm, ScalingLaw


def scaling_laws(curves: Sequence[ScalingCurve], rules: Rules) -> tuple[ScalingLaw, ...]:
    """Return the law of each curve that was measured on four numbers of devices, and on which each rank adds cores.

    The intervals of both numbers of all laws hold together. A cell that may not be compared with the curve's fewest
    devices is left out. Where several cells have one number of devices, the first counts.
    """
    measured = [(curve, _members(curve, rules)) for curve in curves if not curve.adds_nothing]
    asked = [(curve, members) for curve, members in measured if len(members) >= FEWEST_COUNTS]
    family = Family(2 * len(asked), rules.family.confidence)
    return tuple(_law(curve, members, family) for curve, members in asked)


def _members(curve: ScalingCurve, rules: Rules) -> dict[int, CellRuns]:
    found: dict[int, CellRuns] = {}
    for group in curve.comparable(rules.across):
        found.setdefault(ranks(group) or 0, group)
    return found


def _law(curve: ScalingCurve, members: dict[int, CellRuns], family: Family) -> ScalingLaw:
    logs: Logs = {count: group.log_rates for count, group in members.items()}
    law = fit_law(logs, family)
    form, reason = _form(members, law.intervals)
    contention = _cut(law.contention, law.intervals[0], family, 1.0)
    coherency = _cut(law.coherency, law.intervals[1], family, math.inf)
    told = form in (LawForm.ideal, LawForm.amdahl, LawForm.universal)
    return ScalingLaw(
        series=curve.series,
        kind=curve.kind,
        devices=tuple(members),
        form=form,
        contention=contention,
        coherency=coherency,
        misfit=significant(law.misfit, 2),
        speedups=tuple(significant(law.capacity(count) / law.capacity(min(members))) for count in members),
        pays=_reach(contention, coherency, HALF) if told else None,
        peak=_reach(contention, coherency, 0.0) if told else None,
        reason=reason,
    )


def _form(members: dict[int, CellRuns], intervals: Sequence[Interval]) -> tuple[LawForm, str]:
    """Return what the intervals support, and why nothing if they do not."""
    for count, group in members.items():
        if (found := disturbance(group)) is not None:
            return LawForm.disturbed, f"the runs on {count} were disturbed: {found}"
    lows, highs = [one.low for one in intervals], [one.high for one in intervals]
    if None in (*lows, *highs):
        return LawForm.undecided, next(one.reason or "" for one in intervals if one.half_width is None)
    if any(high is not None and high < 0 for high in highs):
        return LawForm.beyond, "the rate grows faster than the number of devices, and the law has no room for that"
    contended, coherent = (low is not None and low > 0 for low in lows)
    return LawForm.universal if coherent else LawForm.amdahl if contended else LawForm.ideal, ""


def _cut(value: float, interval: Interval, family: Family, most: float) -> Estimate:
    """Return a number of the law as a finding: the bounded fit, and the interval cut off at its bounds.

    With few blocks the bounded fit may lie a little outside of the interval of the one without bounds. It is then
    widened to hold both.
    """
    found = linear_estimate(interval, "1", family)
    if found.low is None or found.high is None:
        return found.model_copy(update={"value": significant(value)})
    low, high = (min(max(0.0, end), most) for end in (min(found.low, value), max(found.high, value)))
    return found.model_copy(update={"value": significant(value), "low": significant(low), "high": significant(high)})


def _reach(contention: Estimate, coherency: Estimate, worth: float) -> DeviceCount:
    """Return how many devices add so much. More contention or coherency leaves fewer, so the ends are theirs."""
    assert None not in (contention.low, contention.high, coherency.low, coherency.high), "told with intervals only"
    return DeviceCount(
        value=most_devices(contention.value, coherency.value, worth),
        low=most_devices(contention.high or 0.0, coherency.high or 0.0, worth),
        high=most_devices(contention.low or 0.0, coherency.low or 0.0, worth),
    )
