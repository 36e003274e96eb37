"""The costs of a rate: money, energy and carbon per million samples. No price, no cost: nothing here is made up.

Prices are read as the plan reads them. A cost per epoch needs the number of samples in one pass over the training data
(`EPOCH_SAMPLES`). A cost per result needs runs that reached a target (`RESULTS`). If no record holds them, a note says
so.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from accelsweep.analyse.collected.runs import CellRuns
from accelsweep.analyse.statistics.intervals import Family, Interval, exponential_estimate, significant, t_interval
from accelsweep.base.durations import SECONDS_PER_HOUR
from accelsweep.core.findings.numbers import Estimate
from accelsweep.core.planned.prices import Prices, PriceUsed
from accelsweep.machine.prices import price_lines, price_on, usd_per_hour_on

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
