"""Computes the Pareto front: the settings that no other setting demonstrably beats across all common objectives."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from accelsweep.analysis.costs import common_memory_metric, cost_metric, same_energy_scope
from accelsweep.analysis.quality import QualityMeasure
from accelsweep.metrics import MEMORY_METRICS
from accelsweep.records.estimates import Estimate, Summary, Verdict
from accelsweep.records.findings import SettingFinding

_Ends = tuple[float, float]
_Flags = NDArray[np.bool_]


@dataclass(frozen=True)
class Objective:
    """Each setting's value for one objective, as the two ends of its interval; smaller is better.

    Two values that differ by at most `share` of the better value plus `margin` count as equally good.
    """

    ends: tuple[_Ends, ...]
    share: float = 0.0
    margin: float = 0.0

    def as_good(self, other: int) -> _Flags:
        """Return which settings are demonstrably no worse than `other`, ignoring differences that do not matter."""
        best = self.ends[other][0]
        return self._worst <= best + self.share * abs(best) + self.margin

    def better(self, other: int) -> _Flags:
        """Return which settings are demonstrably better than `other`."""
        return self._worst < self.ends[other][0]

    @cached_property
    def _worst(self) -> NDArray[np.float64]:
        return np.array([high for _, high in self.ends])


def candidates(settings: Sequence[SettingFinding]) -> list[SettingFinding]:
    """Return the settings that can be chosen: those measured and comparable with the baseline."""
    return [
        setting
        for setting in settings
        if setting.measured and setting.verdict not in (Verdict.refused, Verdict.not_measured)
    ]


def objectives(settings: Sequence[SettingFinding], quality: QualityMeasure, threshold: float) -> dict[str, Objective]:
    """Return the objectives available for all `settings`: time per sample, money, energy, memory, quality.

    `threshold` is the largest relative difference in rate, cost or memory that does not matter; quality has its own
    margin. Energy and memory are included only if all readings have the same scope or kind.
    """
    memory, money = common_memory_metric(settings) or MEMORY_METRICS[0], cost_metric(settings)
    ends = {
        "rate": [_inverse(_interval(setting.rate)) for setting in settings],
        money: [_interval(setting.costs.get(money)) for setting in settings],
        "joules_per_sample": [_interval(setting.costs.get("joules_per_sample")) for setting in settings],
        memory: [_range(setting.metrics.get(memory)) for setting in settings],
        "quality": [_interval(setting.quality, negated=quality.better != "min") for setting in settings],
    }
    if not same_energy_scope(settings):
        del ends["joules_per_sample"]
    result = {}
    for name, values in ends.items():
        known = tuple(value for value in values if value is not None)
        if known and len(known) == len(settings):
            limits = {"margin": quality.margin} if name == "quality" else {"share": threshold}
            result[name] = Objective(known, **limits)
    return result


def pareto_front(goals: Mapping[str, Objective], count: int) -> list[int]:
    """Return the indices below `count` that no other index dominates.

    An index dominates another if it is as good in all objectives and better in at least one. A value without an
    interval proves nothing, so a setting with few runs stays on the front.
    """

    def is_dominated(index: int) -> bool:
        as_good = np.logical_and.reduce([goal.as_good(index) for goal in goals.values()])
        better = np.logical_or.reduce([goal.better(index) for goal in goals.values()])
        return bool(np.any(as_good & better))

    return [index for index in range(count) if not goals or not is_dominated(index)]


def _interval(estimate: Estimate | None, *, negated: bool = False) -> _Ends | None:
    """Return the ends of an interval, `negated` if larger is better; infinite if there is no interval."""
    if estimate is None:
        return None
    if estimate.low is None or estimate.high is None:
        return -math.inf, math.inf
    return (-estimate.high, -estimate.low) if negated else (estimate.low, estimate.high)


def _inverse(ends: _Ends | None) -> _Ends | None:
    return ends and (1.0 / ends[1], 1.0 / ends[0] if ends[0] > 0.0 else math.inf)


def _range(summary: Summary | None) -> _Ends | None:
    """Return the smallest and largest observed values, which suffice for memory because its readings barely vary."""
    if summary is None or summary.minimum is None or summary.maximum is None:
        return None
    return summary.minimum, summary.maximum
