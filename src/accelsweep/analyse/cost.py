"""What a rate costs: money, energy and carbon per million samples. No price, no cost: nothing here is made up.

`prices` in the config: `devices: {MODEL or accelerator: {usd_per_hour: ..., date: ..., source: ...}}` (or only the
number), `electricity: {usd_per_kwh: ...}`, `carbon: {grams_per_kwh: ...}`. A price is for one device and hour; for
`cpu` it is for the whole node, because processes on one node share its rent.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from accelsweep.analyse.runs import CellRuns
from accelsweep.analyse.series import ranks
from accelsweep.analyse.statistics import Family, Interval, exponential_estimate, significant, t_interval
from accelsweep.core.errors import InputError
from accelsweep.core.findings import Estimate

SAMPLES = 1e6
SECONDS_PER_HOUR = 3600.0
JOULES_PER_KWH = 3.6e6


def costs(group: CellRuns, prices: Mapping[str, Any], family: Family) -> dict[str, Estimate]:
    """Return the costs of a measured cell that prices and readings allow; `family` gives the intervals' confidence.

    `usd_per_hour`, `usd_per_million_samples` (rent only), `joules_per_sample` (of the scope that was read),
    `energy_usd_per_million_samples`, `co2_grams_per_million_samples`. Raises InputError for a price that is no number.
    """
    found: dict[str, Estimate] = {}
    if not group.measured:
        return found
    rent = usd_per_hour(group, prices)
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
        price = _number(prices.get(section), key, f"prices.{section}")
        if price:
            found[name] = exponential_estimate(joules, unit, family, price * kwh)
    return found


def usd_per_hour(group: CellRuns, prices: Mapping[str, Any]) -> float | None:
    """Return the rent of what the cell trains on, by the device's model or else the accelerator; None if unpriced."""
    listed = prices.get("devices") or {}
    names = [*dict.fromkeys(group.effective.get("device_names", ())), group.config.get("accelerator")]
    name = next((name for name in names if name in listed), None)
    if name is None:
        return None
    price = _number(listed[name], "usd_per_hour", f"prices.devices.{name}")
    units = group.config.get("num_nodes", 1) if group.config.get("accelerator") == "cpu" else ranks(group)
    return None if price is None or units is None else price * units


def note(prices: Mapping[str, Any], found: Sequence[Mapping[str, Estimate]]) -> str | None:
    """Return why there is no cost in money, or None if at least one cell has one."""
    if any("usd_per_million_samples" in one for one in found):
        return None
    if not prices.get("devices"):
        return (
            "no prices were given, so there are no costs; add prices=NAME from conf/prices/ or +prices.devices.cuda=USD"
        )
    return f"no price matches the devices that were measured; prices.devices has {', '.join(sorted(prices['devices']))}"


def _number(entry: Any, key: str, where: str) -> float | None:
    value = entry.get(key) if isinstance(entry, Mapping) else entry
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or not value >= 0:
        raise InputError(f"{where}: {value!r} is no price; {key} must be a number of at least 0")
    return float(value)
