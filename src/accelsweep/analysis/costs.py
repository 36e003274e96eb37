"""Derives costs in money, energy and carbon from rates. Each cost requires a price or a reading.

A cost per epoch requires the number of samples in one pass over the training data (`EPOCH_SAMPLES`). A cost per result
requires runs that reached a target (`RESULTS`) or whole processes (`PROCESS_RATE`). If no record contains these data,
`missing_costs` explains which costs are missing.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from accelsweep.analysis.intervals import Family, Interval, exponential_estimate, round_significant, t_interval
from accelsweep.analysis.run_results import SettingRuns
from accelsweep.config.prices import Prices, PriceUsed, price_lines, price_on, usd_per_hour_on
from accelsweep.metrics import MEMORY_METRICS
from accelsweep.records.estimates import Estimate
from accelsweep.records.findings import SettingFinding
from accelsweep.significant_digits import SECONDS_PER_HOUR
from accelsweep.tasks import PROCESS_RATE

PRICED_SAMPLES = 1e6

JOULES_PER_KWH = 3.6e6

EPOCH_SAMPLES = "epoch_samples"
"""The number of samples in one pass over the training data, summed over all ranks."""

RESULTS, TIME = "results_per_hour", "time_to_target_seconds"
"""The metrics recorded only by runs that train to a target."""


def costs(group: SettingRuns, prices: Prices, family: Family) -> dict[str, Estimate]:
    """Return those costs of a measured setting for which prices and readings exist; `family` sets the confidence.

    Possible keys: `usd_per_hour`, `usd_per_million_samples`, `usd_per_million_tokens`, `usd_per_epoch` and
    `usd_per_result` (rent only), `joules_per_sample` and `joules_per_token` (only for the devices whose counters were
    read), `energy_usd_per_million_samples`, `co2_grams_per_million_samples`. Tokens are those that the batches show.
    """
    if not group.measured:
        return {}
    rent = None if group.config is None else usd_per_hour_on(prices, group.config, _device_names(group))
    return (_rent_costs(group, rent, family) if rent is not None else {}) | _energy_costs(group, prices, family)


def _rent_costs(group: SettingRuns, usd_per_hour: float, family: Family) -> dict[str, Estimate]:
    """Return the costs per hour, per sample, per epoch and per result: the rent divided by the respective rate."""
    per_second = usd_per_hour / SECONDS_PER_HOUR
    scales = {
        "usd_per_million_samples": ("samples_per_second", per_second * PRICED_SAMPLES),
        "usd_per_million_tokens": ("tokens_per_second", per_second * PRICED_SAMPLES),
        "usd_per_epoch": ("samples_per_second", per_second * (epoch_samples(group) or 0.0)),
        "usd_per_result": (PROCESS_RATE if group.rate_metric == PROCESS_RATE else RESULTS, usd_per_hour),
    }
    hour = Estimate(
        value=round_significant(usd_per_hour),
        low=None,
        high=None,
        unit="USD/h",
        confidence=family.each,
        count=0,
        reason="a price, not a measurement",
    )
    result = {"usd_per_hour": hour}
    for name, (metric, scale) in scales.items():
        if scale and (logs := list(group.logs(metric).values())):
            rate = t_interval(logs, family)
            inverse = Interval(-rate.center, rate.half_width, rate.count, rate.reason)
            result[name] = exponential_estimate(inverse, "USD", family, scale)
    return result


def _energy_costs(group: SettingRuns, prices: Prices, family: Family) -> dict[str, Estimate]:
    logs = _joules_per(group, "window_samples")
    if not logs:
        return {}
    joules = t_interval(logs, family)
    result = {"joules_per_sample": exponential_estimate(joules, "J", family)}
    if per_token := _joules_per(group, "window_tokens"):
        result["joules_per_token"] = exponential_estimate(t_interval(per_token, family), "J", family)
    amounts = {
        "energy_usd_per_million_samples": ("USD", prices.electricity and prices.electricity.usd_per_kwh),
        "co2_grams_per_million_samples": ("g", prices.carbon and prices.carbon.grams_per_kwh),
    }
    for name, (unit, per_kwh) in amounts.items():
        if per_kwh:
            result[name] = exponential_estimate(joules, unit, family, per_kwh * (PRICED_SAMPLES / JOULES_PER_KWH))
    return result


def _joules_per(group: SettingRuns, amount: str) -> list[float]:
    """Return the logarithms of the joules per unit of the metric `amount`, for the runs in which both are known."""
    energies = [(run.value("energy_joules"), run.value(amount)) for run in group.measured]
    return [math.log(joules / units) for joules, units in energies if joules and units]


def time_to_target(group: SettingRuns, family: Family) -> Estimate | None:
    """Return the geometric mean training time in seconds of the runs that reached the target; None if none did."""
    logs = list(group.logs(TIME).values())
    return exponential_estimate(t_interval(logs, family), "s", family) if logs else None


def epoch_samples(group: SettingRuns) -> float | None:
    """Return the number of samples in one pass over the training data; None unless the records agree on it."""
    sizes = set(group.values(EPOCH_SAMPLES))
    return sizes.pop() if len(sizes) == 1 else None


def prices_used(
    groups: Sequence[SettingRuns], found: Sequence[Mapping[str, Estimate]], prices: Prices
) -> tuple[PriceUsed, ...]:
    """Return the prices that were used to compute `found`, the costs of these settings."""
    measured = [(group.config, _device_names(group)) for group in groups if group.measured]
    devices = [price_on(prices, config, models) for config, models in measured if config is not None]
    names = {device[0] for device in devices if device is not None}
    given = {name for one in found for name in one}
    energy = {"electricity": "energy_usd_per_million_samples", "carbon": "co2_grams_per_million_samples"}
    return price_lines(prices, names | {name for name, cost in energy.items() if cost in given})


def missing_costs(groups: Sequence[SettingRuns], found: Sequence[Mapping[str, Estimate]]) -> tuple[str, ...]:
    """Explain which costs are missing although prices are configured, and why."""
    if not any("usd_per_hour" in one for one in found):
        return ()
    lines = []
    if any("usd_per_hour" in one and epoch_samples(group) is None for group, one in zip(groups, found, strict=True)):
        lines.append("Cost per epoch: not available, because the records do not contain the size of the training data.")
    if not any("usd_per_result" in one for one in found):
        aimed = any(TIME in run.metrics for group in groups for run in group.measured)
        why = "no run reached its target" if aimed else "no run in this sweep trains to a target"
        lines.append(f"Cost per result: not available, because {why}.")
    return tuple(lines)


def no_cost_reason(prices: Prices, found: Sequence[Mapping[str, Estimate]]) -> str | None:
    """Explain why no setting has a monetary cost; None if at least one has."""
    if any("usd_per_million_samples" in one for one in found):
        return None
    if not prices.hourly:
        return "no prices are configured; for costs, add prices=NAME from conf/prices/ or +prices.devices.cuda=USD"
    return f"no price matches the measured devices; prices.devices contains {', '.join(sorted(prices.hourly))}"


def _device_names(group: SettingRuns) -> tuple[str, ...]:
    return group.effective.device_names if group.effective else ()


# Lookups of costs and memory in findings, for the Pareto front and the advice.


def same_energy_scope(settings: Sequence[SettingFinding]) -> bool:
    """Return whether these settings' energies may be compared. CPU packages cannot be compared with GPU boards."""
    return (
        len({setting.metrics["energy_joules"].scope for setting in settings if "joules_per_sample" in setting.costs})
        < 2
    )


def cost_metric(settings: Sequence[SettingFinding]) -> str:
    """Return the metric for comparing costs: per result if available for any setting, else per million samples."""
    return (
        "usd_per_result"
        if any("usd_per_result" in setting.costs for setting in settings)
        else "usd_per_million_samples"
    )


def common_memory_metric(settings: Sequence[SettingFinding]) -> str | None:
    """Return the first memory metric available for all of these settings, if any."""
    return next(
        (name for name in MEMORY_METRICS if all(median_of(setting, name) is not None for setting in settings)), None
    )


def median_of(setting: SettingFinding, metric: str) -> float | None:
    """Return the median of a setting's metric; None if it was not measured."""
    return setting.metrics[metric].median if metric in setting.metrics else None


def cost_of(setting: SettingFinding, name: str) -> float | None:
    """Return the setting's cost with the given name; None if it is not available."""
    return setting.costs[name].value if name in setting.costs else None


def cost_ratio(
    setting: SettingFinding, baseline: SettingFinding | None, settings: Sequence[SettingFinding]
) -> float | None:
    """Return the setting's cost relative to the baseline's for the same amount of work; None if unknown.

    Costs are compared by the `cost_metric` of `settings`.
    """
    metric = cost_metric(settings)
    own, other = cost_of(setting, metric), baseline and cost_of(baseline, metric)
    return own / other if own is not None and other else None
