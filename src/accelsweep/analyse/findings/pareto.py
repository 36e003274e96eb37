"""The Pareto front: cells that no other cell is shown to beat in everything that was measured of all of them."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from accelsweep.analyse.findings.quality import QualityMeasure
from accelsweep.core.findings.measured import CellFinding
from accelsweep.core.findings.numbers import Estimate, Summary, Verdict
from accelsweep.core.recorded.metrics import MEMORY_METRICS


def candidates(cells: Sequence[CellFinding]) -> list[CellFinding]:
    """Return the cells that can be chosen: measured, and comparable with the baseline."""
    return [cell for cell in cells if cell.measured and cell.verdict not in (Verdict.refused, Verdict.not_measured)]


@dataclass(frozen=True)
class Objective:
    """Each cell's value in one respect: both ends of its interval, where smaller is better.

    Two values within `share` of the larger, and `margin`, are as good as each other.
    """

    ends: tuple[tuple[float, float], ...]
    share: float = 0.0
    margin: float = 0.0

    def as_good(self, one: int, other: int) -> bool:
        """Return whether cell `one` is shown to be no worse than cell `other`, beyond differences that matter."""
        best = self.ends[other][0]
        return self.ends[one][1] <= best + self.share * abs(best) + self.margin

    def better(self, one: int, other: int) -> bool:
        """Return whether cell `one` is shown to be better than cell `other`."""
        return self.ends[one][1] < self.ends[other][0]


def objectives(cells: Sequence[CellFinding], quality: QualityMeasure, threshold: float) -> dict[str, Objective]:
    """Return the respects in which all `cells` have a value: time per sample, money, energy, memory, quality.

    `threshold` is the share of a rate, a cost or memory that does not matter; of quality its own margin does not.
    Energy counts only where all readings have the same scope, memory only where all have the same kind.
    """
    memory = memory_of_all(cells) or MEMORY_METRICS[0]
    money = money_of(cells)
    found = {
        "rate": [_inverse(_ends(cell.rate)) for cell in cells],
        money: [_ends(cell.costs.get(money)) for cell in cells],
        "joules_per_sample": [_ends(cell.costs.get("joules_per_sample")) for cell in cells],
        memory: [_extremes(cell.metrics.get(memory)) for cell in cells],
        "quality": [_ends(cell.quality, falls=quality.better != "min") for cell in cells],
    }
    if not one_energy_scope(cells):
        del found["joules_per_sample"]
    whole = {name: tuple(end for end in ends if end is not None) for name, ends in found.items()}
    return {
        name: Objective(ends, margin=quality.margin) if name == "quality" else Objective(ends, share=threshold)
        for name, ends in whole.items()
        if ends and len(ends) == len(cells)
    }


def front(goals: Mapping[str, Objective], count: int) -> list[int]:
    """Return the indices, out of `count`, that no other is shown to beat: as good in everything, better in something.

    A value without an interval shows nothing, so a cell with few runs stays on the front.
    """
    return [index for index in range(count) if not any(_beats(goals, other, index) for other in range(count))]


def _beats(goals: Mapping[str, Objective], one: int, other: int) -> bool:
    as_good = all(goal.as_good(one, other) for goal in goals.values())
    return as_good and any(goal.better(one, other) for goal in goals.values())


def _ends(estimate: Estimate | None, *, falls: bool = False) -> tuple[float, float] | None:
    """Return the ends of an interval, turned round where larger is better; without an interval nothing is known."""
    if estimate is None:
        return None
    if estimate.low is None or estimate.high is None:
        return -math.inf, math.inf
    return (-estimate.high, -estimate.low) if falls else (estimate.low, estimate.high)


def _inverse(ends: tuple[float, float] | None) -> tuple[float, float] | None:
    """Return the ends of 1 / x: the time that a sample takes."""
    return ends and (1.0 / ends[1], 1.0 / ends[0] if ends[0] > 0.0 else math.inf)


def _extremes(summary: Summary | None) -> tuple[float, float] | None:
    """Return the smallest and the largest observed value: memory repeats exactly, or nearly."""
    if summary is None or summary.minimum is None or summary.maximum is None:
        return None
    return summary.minimum, summary.maximum


def one_energy_scope(cells: Sequence[CellFinding]) -> bool:
    """Return whether these cells' joules may be compared: processors' packages and GPUs' boards may not."""
    return len({cell.metrics["energy_joules"].scope for cell in cells if "joules_per_sample" in cell.costs}) < 2


def money_of(cells: Sequence[CellFinding]) -> str:
    """Return the cost that cells are weighed by: of a result, where some have one, else of a million samples."""
    return "usd_per_result" if any("usd_per_result" in cell.costs for cell in cells) else "usd_per_million_samples"


def memory_of_all(cells: Sequence[CellFinding]) -> str | None:
    """Return the memory metric by which these cells are weighed: the first that all of them have, or None."""
    return next((name for name in MEMORY_METRICS if all(value_of(cell, name) is not None for cell in cells)), None)


def value_of(cell: CellFinding, metric: str) -> float | None:
    """Return the median of a cell's metric, or None."""
    return cell.metrics[metric].median if metric in cell.metrics else None


def cost_of(cell: CellFinding, name: str) -> float | None:
    """Return one of a cell's costs, or None."""
    return cell.costs[name].value if name in cell.costs else None
