"""The costs of a rate: money, energy and carbon per million samples. No price, no cost: nothing here is made up.

Prices are read as the plan reads them. A cost per epoch needs the number of samples in one pass over the training data
(`EPOCH_SAMPLES`). A cost per result needs runs that reached a target (`RESULTS`). If no record holds them, a note says
so.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from accelsweep.analysis.intervals import Family, Interval, exponential_estimate, significant, t_interval
from accelsweep.analysis.quality import QualityMeasure
from accelsweep.analysis.run_results import CellRuns
from accelsweep.config.prices import Prices, PriceUsed, price_lines, price_on, usd_per_hour_on
from accelsweep.records.estimates import Estimate, Summary, Verdict
from accelsweep.records.findings import CellFinding
from accelsweep.records.metrics import MEMORY_METRICS
from accelsweep.significant_digits import SECONDS_PER_HOUR

PRICED_SAMPLES = 1e6

JOULES_PER_KWH = 3.6e6

EPOCH_SAMPLES = "epoch_samples"
"""The number of samples in one pass over the training data, on all ranks together."""

RESULTS, TIME = "results_per_hour", "time_to_target_seconds"
"""The metrics of a run that trained to a target."""


def costs(group: CellRuns, prices: Prices, family: Family) -> dict[str, Estimate]:
    """Return the costs of a measured cell that prices and readings allow; `family` gives the intervals' confidence.

    `usd_per_hour`, `usd_per_million_samples`, `usd_per_epoch` and `usd_per_result` (rent only), `joules_per_sample` (of
    the scope that was read), `energy_usd_per_million_samples`, `co2_grams_per_million_samples`.
    """
    found: dict[str, Estimate] = {}
    if not group.measured:
        return found
    rent = None if group.config is None else usd_per_hour_on(prices, group.config, _models(group))
    if rent is not None:
        reason = "a price, not a measurement"
        found["usd_per_hour"] = Estimate(
            value=significant(rent), low=None, high=None, unit="USD/h", confidence=family.each, count=0, reason=reason
        )
        found.update(_rents(group, rent, family))
    found.update(_energy_costs(group, prices, family))
    return found


def _rents(group: CellRuns, usd_per_hour: float, family: Family) -> dict[str, Estimate]:
    """Return the costs of samples, an epoch and a result: the rent over their rate."""
    per_second = usd_per_hour / SECONDS_PER_HOUR
    amounts = {"usd_per_million_samples": PRICED_SAMPLES, "usd_per_epoch": epoch_samples(group)}
    scales = {name: ("samples_per_second", per_second * samples) for name, samples in amounts.items() if samples}
    scales["usd_per_result"] = (RESULTS, usd_per_hour)
    found = {}
    for name, (metric, scale) in scales.items():
        if logs := list(group.logs(metric).values()):
            rate = t_interval(logs, family)
            turned_over = Interval(-rate.center, rate.half_width, rate.count, rate.reason)
            found[name] = exponential_estimate(turned_over, "USD", family, scale)
    return found


def time_to_target(group: CellRuns, family: Family) -> Estimate | None:
    """Return the geometric mean of the seconds of training to the target, of the runs that reached it; None if none."""
    logs = list(group.logs(TIME).values())
    return exponential_estimate(t_interval(logs, family), "s", family) if logs else None


def epoch_samples(group: CellRuns) -> float | None:
    """Return the samples of one pass over the training data, or None if the records do not hold one and the same."""
    sizes = set(group.values(EPOCH_SAMPLES))
    return sizes.pop() if len(sizes) == 1 else None


def used(groups: Sequence[CellRuns], found: Sequence[Mapping[str, Estimate]], prices: Prices) -> tuple[PriceUsed, ...]:
    """Return the prices that the costs `found` of these cells were computed with."""
    measured = [(one.config, _models(one)) for one in groups if one.measured]
    devices = [price_on(prices, config, models) for config, models in measured if config is not None]
    names = {device[0] for device in devices if device is not None}
    given = {name for one in found for name in one}
    energy = {"electricity": "energy_usd_per_million_samples", "carbon": "co2_grams_per_million_samples"}
    return price_lines(prices, names | {name for name, cost in energy.items() if cost in given})


def gaps(groups: Sequence[CellRuns], found: Sequence[Mapping[str, Estimate]]) -> tuple[str, ...]:
    """Return which costs are not given although there are prices, and why."""
    if not any("usd_per_hour" in one for one in found):
        return ()
    lines = []
    if any("usd_per_hour" in cost and epoch_samples(one) is None for one, cost in zip(groups, found, strict=True)):
        lines.append("Cost per epoch: not given, because the records do not hold the size of the training data.")
    if not any("usd_per_result" in one for one in found):
        aimed = any(TIME in run.metrics for group in groups for run in group.measured)
        why = "no run reached its target" if aimed else "no run of this sweep trains to a target"
        lines.append(f"Cost per result: not given, because {why}.")
    return tuple(lines)


def _models(group: CellRuns) -> tuple[str, ...]:
    return group.effective.device_names if group.effective else ()


def _energy_costs(group: CellRuns, prices: Prices, family: Family) -> dict[str, Estimate]:
    energies = [(run.value("energy_joules"), run.value("window_samples")) for run in group.measured]
    logs = [math.log(joules / samples) for joules, samples in energies if joules and samples]
    if not logs:
        return {}
    joules = t_interval(logs, family)
    found = {"joules_per_sample": exponential_estimate(joules, "J", family)}
    kwh = PRICED_SAMPLES / JOULES_PER_KWH
    amounts = {
        "energy_usd_per_million_samples": ("USD", prices.electricity and prices.electricity.usd_per_kwh),
        "co2_grams_per_million_samples": ("g", prices.carbon and prices.carbon.grams_per_kwh),
    }
    for name, (unit, per_kwh) in amounts.items():
        if per_kwh:
            found[name] = exponential_estimate(joules, unit, family, per_kwh * kwh)
    return found


def note(prices: Prices, found: Sequence[Mapping[str, Estimate]]) -> str | None:
    """Return why there is no cost in money, or None if at least one cell has one."""
    if any("usd_per_million_samples" in one for one in found):
        return None
    if not prices.hourly:
        return (
            "no prices were given, so there are no costs; add prices=NAME from conf/prices/ or +prices.devices.cuda=USD"
        )
    return f"no price matches the devices that were measured; prices.devices has {', '.join(sorted(prices.hourly))}"


# The Pareto front: cells that no other cell is shown to beat in everything that was measured of all of them.


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
