"""What a rate costs: money, energy and carbon per million samples. No price, no cost: nothing here is made up.

Device prices are read as the plan reads them; beside `prices.devices`, `prices.electricity.usd_per_kwh` and
`prices.carbon.grams_per_kwh` turn a measured energy into money and carbon.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from accelsweep.analyse.runs import CellRuns
from accelsweep.analyse.statistics import Family, Interval, exponential_estimate, significant, t_interval
from accelsweep.core.errors import InputError
from accelsweep.core.findings import Estimate
from accelsweep.plan.prices import usd_per_hour_on

SAMPLES = 1e6
SECONDS_PER_HOUR = 3600.0
JOULES_PER_KWH = 3.6e6


def costs(group: CellRuns, prices: Mapping[str, Any], family: Family) -> dict[str, Estimate]:
    """Return the costs of a measured cell that prices and readings allow; `family` gives the intervals' confidence.

    `usd_per_hour`, `usd_per_million_samples` (rent only), `joules_per_sample` (of the scope that was read),
    `energy_usd_per_million_samples`, `co2_grams_per_million_samples`. Raises InputError or
    ValidationError for a price that is no number.
    """
    found: dict[str, Estimate] = {}
    if not group.measured:
        return found
    rent = usd_per_hour_on(prices, group.config, tuple(group.effective.get("device_names", ())))
    if rent is not None:
        reason = "a price, not a measurement"
        found["usd_per_hour"] = Estimate(
            value=significant(rent), low=None, high=None, unit="USD/h", confidence=family.each, count=0, reason=reason
        )
        rate = t_interval(list(group.log_rates.values()), family)
        seconds = Interval(-rate.center, rate.half_width, rate.count, rate.reason)
        scale = rent / SECONDS_PER_HOUR * SAMPLES
        found["usd_per_million_samples"] = exponential_estimate(seconds, "USD", family, scale)
    found.update(_energy_costs(group, prices, family))
    return found


def _energy_costs(group: CellRuns, prices: Mapping[str, Any], family: Family) -> dict[str, Estimate]:
    energies = [(run.value("energy_joules"), run.value("window_samples")) for run in group.measured]
    logs = [math.log(joules / samples) for joules, samples in energies if joules and samples]
    if not logs:
        return {}
    joules = t_interval(logs, family)
    found = {"joules_per_sample": exponential_estimate(joules, "J", family)}
    kwh = SAMPLES / JOULES_PER_KWH
    for name, unit, section, key in (
        ("energy_usd_per_million_samples", "USD", "electricity", "usd_per_kwh"),
        ("co2_grams_per_million_samples", "g", "carbon", "grams_per_kwh"),
    ):
        price = _price(prices, section, key)
        if price:
            found[name] = exponential_estimate(joules, unit, family, price * kwh)
    return found


def note(prices: Mapping[str, Any], found: Sequence[Mapping[str, Estimate]]) -> str | None:
    """Return why there is no cost in money, or None if at least one cell has one."""
    if any("usd_per_million_samples" in one for one in found):
        return None
    if not prices.get("devices"):
        return (
            "no prices were given, so there are no costs; add prices=NAME from conf/prices/ or +prices.devices.cuda=USD"
        )
    return f"no price matches the devices that were measured; prices.devices has {', '.join(sorted(prices['devices']))}"


def _price(prices: Mapping[str, Any], section: str, key: str) -> float | None:
    value = (prices.get(section) or {}).get(key)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or not value >= 0:
        raise InputError(f"prices.{section}.{key}: {value!r} is no price; it must be a number of at least 0")
    return float(value)
