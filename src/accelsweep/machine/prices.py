"""The price of an hour of a cell on devices that are known by name, and the prices that it was computed with."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from accelsweep.core.cells.config import CellConfig
from accelsweep.core.planned.prices import Price, Prices, PriceUsed, Stated
from accelsweep.machine.peaks import datasheet_of


def usd_per_hour_on(prices: Prices, config: CellConfig, models: Sequence[str]) -> float | None:
    """Return the price of an hour of a cell with this config on devices of one of these `models`; None if unpriced."""
    found = price_on(prices, config, models)
    if found is None:
        return None
    units = config.world_size if config.on_gpu else config.num_nodes
    return float(found[1].usd_per_hour * units)


def price_on(prices: Prices, config: CellConfig, models: Sequence[str]) -> tuple[str, Price] | None:
    """Return the priced name of the devices that a cell with this config uses, and the price; None if unpriced.

    A device's own name goes before the key of its datasheet, such as `h100-sxm`, and that before its accelerator.
    """
    keys = [sheet.key for model in models if (sheet := datasheet_of(model)) is not None]
    return prices.of_device(config.accelerator, [*models, *keys])


def price_lines(prices: Prices, used: Collection[str]) -> tuple[PriceUsed, ...]:
    """Return the prices whose names are in `used` (`electricity` and `carbon` for those) with dates and sources."""
    lines: list[tuple[str, float, str, Stated]] = [
        (name, price.usd_per_hour, "USD per hour", price) for name, price in prices.hourly.items()
    ]
    if prices.electricity is not None:
        lines.append(("electricity", prices.electricity.usd_per_kwh, "USD per kWh", prices.electricity))
    if prices.carbon is not None:
        lines.append(("carbon", prices.carbon.grams_per_kwh, "g CO2 per kWh", prices.carbon))
    return tuple(
        PriceUsed(name=name, value=value, unit=unit, date=stated.date, source=stated.source)
        for name, value, unit, stated in lines
        if name in used
    )
